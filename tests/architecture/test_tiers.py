"""The table of tests that wait for the slow tier names tests that exist, and leaves each folder quick ones. And one clock."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.reading import part_first
from tests.tiers import LATER, later

ROOT = Path(__file__).parents[2]
FILES = sorted({entry.partition("::")[0] for entry in LATER})


def _collected(request: pytest.FixtureRequest) -> list[str]:
    """From what this run collected; where it collected only part of it, from a collection of its own."""
    names = [item.nodeid for item in request.config.stash[COLLECTED]]
    if set(FILES) <= {name.partition("::")[0] for name in names}:
        return names
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_each_entry_names_a_test(request: pytest.FixtureRequest) -> None:
    names = _collected(request)
    assert [entry for entry in LATER if not any(name.startswith(entry) for name in names)] == []
    assert len(set(LATER)) == len(LATER)


def test_each_folder_keeps_tests_in_the_quick_tier(request: pytest.FixtureRequest) -> None:
    """What a folder is for is shown at every change."""
    names = _collected(request)
    folders = {Path(file).parts[1] for file in FILES}
    assert folders == {Path(name).parts[1] for name in names if not later(name)} & folders


def test_one_place_reads_the_processors_clock() -> None:
    """A test that does so itself forgets what `tests.cpu_time` keeps out, and fails where a test before it left much behind."""
    clock = re.compile(r"(process|thread)_time\(")
    found = {path for path in (ROOT / "tests").rglob("*.py") if clock.search(path.read_text())}
    assert found == {ROOT / "tests" / "cpu_time.py"}


@pytest.mark.parametrize("names", [["a", "b", "c", "d", "e", "f", "g"], ["a"], []])
def test_each_worker_reads_every_module_and_begins_elsewhere(names: list[str]) -> None:
    orders = [part_first(names, worker, 3) for worker in range(3)]
    assert [sorted(order) for order in orders] == [names] * 3
    assert len({order[0] for order in orders if order}) == min(3, len(names))
