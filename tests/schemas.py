"""A service's database of the newest schema, as a copy of one that was made before. Knows no table, and no service's start.

Some hundred tests start four services each over empty folders, and to run all revisions took 60 ms of every such start. The services
still upgrade what they find; tests of revisions make their databases by them.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from shared.service.engine import parse_url
from shared.service.migrations import upgrade


def lay(url: str, package: str) -> str:
    """`url`, below which there is the newest schema of `package` now if it names an SQLite file that was not there."""
    parsed = parse_url(url)
    if parsed.drivername.startswith("sqlite") and parsed.database is not None:
        path = Path(parsed.database)
        if not path.exists():
            path.write_bytes(_newest(package))
    return url


@cache
def _newest(package: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="gput-schema-") as folder:
        path = Path(folder) / "state.db"
        upgrade(f"sqlite:///{path}", package)
        left = os.listdir(folder)
        if left != [path.name]:  # a log that was not folded in would be missing from every copy
            raise AssertionError(f"the database is more than its file: {left}")
        return path.read_bytes()
