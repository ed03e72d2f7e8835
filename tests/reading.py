"""Several workers of one run read its test modules once between them. Knows no test.

Each worker needs them all, and a fresh clone has no bytecode: three workers that begin at the same file rewrite and compile all 900 of
them three times over. So each begins at another part of the list; what one has compiled, the others find as bytecode.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest


def part_first(names: list[str], worker: int, workers: int) -> list[str]:
    """The same names, beginning with this worker's part of them."""
    start = len(names) * worker // workers
    return names[start:] + names[:start]


@pytest.hookimpl(trylast=True, wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Imports what is about to be collected, in this worker's own order. What cannot be imported is pytest's to report, right after."""
    run: dict[str, object] = getattr(session.config, "workerinput", {})
    workers = int(str(run.get("workercount", 1)))
    if workers > 1:
        worker = int(str(run["workerid"]).removeprefix("gw"))
        for name in part_first(_modules(session.config), worker, workers):
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)
    return (yield)


def _modules(config: pytest.Config) -> list[str]:
    """Names of the test modules below what the run was asked for, in order."""
    asked = [config.rootpath / argument.partition("::")[0] for argument in config.args]
    files = {file for path in asked for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    return [".".join(Path(file).relative_to(config.rootpath).with_suffix("").parts) for file in sorted(files)]
