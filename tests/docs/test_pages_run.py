"""The tutorial and the how-to guides are executed, command by command, as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reasons import RUNS
from tests.docs.run import run, script, shell


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1800)
def test_the_pages_run(tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    code, said = run(script(shell(RUNS)), folder)
    assert code == 0, said[-6000:]
    assert not (folder / "pids").exists()


def test_a_command_that_fails_ends_the_run_and_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    code, said = run("set -euo pipefail\necho == page.md:7 >&2\nfalse | cat\ntouch beyond\n", folder)
    assert code == 1
    assert "== page.md:7" in said
    assert not (folder / "beyond").exists()


def test_what_stops_the_services_comes_last() -> None:
    order = [block.page for block in shell(RUNS)]
    assert set(order) == set(RUNS)
    assert order[0] == order[-1] == RUNS[0]
    assert "kill $(cat pids)" in shell(RUNS)[-1].lines
