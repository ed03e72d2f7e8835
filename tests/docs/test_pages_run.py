"""The tutorial and the how-to guides are executed, command by command, as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.reasons import RUNS
from tests.docs.run import run, script, shell

OTHERWISE = (
    RUNS[0],
    "docs/how-to/platform.md",
    "docs/how-to/researcher.md",
    "docs/how-to/ml-engineer.md",
    "docs/how-to/operator.md",
)
"""The operator's guide is last: it leaves a policy behind that answers before a person does, and says so."""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("pages", [RUNS, OTHERWISE], ids=["in order", "otherwise"])
def test_the_pages_run(tmp_path: Path, pages: tuple[str, ...]) -> None:
    """Each guide goes on where the tutorial stands, whichever others were read before."""
    assert set(pages) == set(RUNS)
    folder = tmp_path / "reader"
    folder.mkdir()
    code, said = run(script(shell(pages)), folder)
    assert code == 0, said[-6000:]
    assert not list(folder.glob("*.pid"))


@pytest.mark.parametrize("page", RUNS)
def test_a_page_stops_a_service_by_its_own_name_and_not_by_when_it_was_started(page: str) -> None:
    """By a line of a list of numbers another page's restart makes it another service."""
    lines = [line for block in shell([page]) for line in block.lines]
    stopped = [place for line in lines for place in re.findall(r"\bkill\b.*?\$\((.*?)\)", line)]
    assert {place for place in stopped if not re.fullmatch(r"cat (\*|[a-z-]+)\.pid", place)} == set()
    started = {name for line in lines for name in re.findall(r"^bash start (\S+)", line)}
    assert {place.removeprefix("cat ").removesuffix(".pid") for place in stopped} - {"*"} <= started


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
    assert "kill $(cat *.pid)" in shell(RUNS)[-1].lines
