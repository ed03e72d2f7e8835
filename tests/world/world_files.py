"""What lies on disk below a folder that running services still write in and delete from. Knows no service and no secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path


def paths_below(folder: Path, but: Set[str] = frozenset()) -> list[Path]:
    """All files, sorted, but those of these names. Folders that go away meanwhile are passed over (`rglob` would raise)."""
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names if name not in but)
    return sorted(path for path in found if path.is_file())


def contents_below(folder: Path, but: Set[str] = frozenset()) -> Iterator[tuple[Path, bytes]]:
    """Each file's path and bytes. One that was deleted since it was listed (an old checkpoint, a database's journal) is passed over."""
    for path in paths_below(folder, but):
        data = None
        with suppress(FileNotFoundError):
            data = path.read_bytes()
        if data is not None:
            yield path, data
