"""Writes docs/security.md from the marks of the tests: each attack of the adversary table, its result in each travel mode, who proves it.

`--check` only compares, and exits 1 where the page is out of date (the test run does that). Knows tests by their marks, no service.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.adversary.mutants import MUTANTS
from tests.adversary.rows import MODES, ROWS, Result

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
MARK = "tests.adversary.rows import"
HEAD = """# Attacks and what becomes of them

Made from the tests by `python -m docs.security`; do not edit. Every attack of the adversary table, and in each travel mode what is
expected of it: **stopped** (by what), **open** (the publication leaves it so, and the attack is shown to succeed) or **out** (out of scope,
and what is shown all the same). A cell says what a test that runs in that mode asserts; NOT TESTED means that nothing here vouches for it,
whatever other pages say. What is the same in every mode (evidence, HTTP, storage) was tested once.

A defence is *needed* where a mutant without it makes the row's own test fail (`tests/adversary/test_defences_are_needed.py`); rows that
are called stopped and have no mutant yet are listed at the end.

What the hostile platform and hostile holders choose (which message, when, which bit, which edge) is drawn from one seed, so that a run can
be repeated, and another one tried: `ADVERSARY_SEED=7 python -m pytest tests/adversary`.
"""


@dataclass
class Proofs:
    """What tests say of one row: results by mode, and the tests."""

    results: dict[str, dict[Result, None]] = field(default_factory=lambda: defaultdict(dict))
    tests: dict[str, None] = field(default_factory=dict)

    def cell(self, mode: str, absent: Mapping[str, str]) -> str:
        """Of the table. Raises: ValueError: tests contradict one another."""
        found = self.results.get(mode, {})
        if not found:
            return f"– ({absent[mode]})" if mode in absent else "NOT TESTED"
        verdicts = {result.verdict for result in found}
        if len(verdicts) > 1:
            raise ValueError(f"tests contradict one another in {mode}: {[str(result) for result in found]}")
        return f"**{verdicts.pop()}**: {'; '.join(result.how for result in found)}"


class Collector:
    """A pytest plugin that keeps what collection finds."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called once."""
        self.items = list(session.items)


def marking() -> list[Path]:
    """The files of tests that mark any."""
    return [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text()]


def collected() -> list[pytest.Item]:
    """Every test in files that mark any. Raises: RuntimeError: they cannot be collected."""
    files = [str(path) for path in marking()]
    collector = Collector()
    options = ["--collect-only", "-q", "--no-header", "-p", "no:cacheprovider", "-o", "addopts=", f"--rootdir={ROOT}"]
    with redirect_stdout(io.StringIO()) as said:
        code = pytest.main([*options, *files], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: {said.getvalue()[-4000:]}")
    return collector.items


def proofs(items: Iterable[pytest.Item]) -> dict[str, Proofs]:
    """By row. A test that is parametrised by mode must run in each mode that it speaks of."""
    found = {row: Proofs() for row in ROWS}
    run: defaultdict[str, set[str]] = defaultdict(set)
    spoken: dict[str, set[str]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "mode" in callspec.params:
            run[name].add(str(getattr(callspec.params["mode"], "value", callspec.params["mode"])))
        for mark in item.iter_markers("attack"):
            rows, results = mark.args
            spoken.setdefault(name, set()).update(results)
            for row in rows:
                found[row].tests[name] = None
                for mode, result in results.items():
                    found[row].results[mode][result] = None
    unrun = {
        name: sorted(spoken[name] - modes) for name, modes in run.items() if name in spoken and spoken[name] - modes
    }
    if unrun:
        raise ValueError(f"these tests speak of modes in which they do not run: {unrun}")
    return found


def table(found: Mapping[str, Proofs]) -> Iterator[str]:
    """The rows of the page."""
    yield f"| | attack | {' | '.join(MODES)} | proven by |"
    yield "|---|---|" + "---|" * (len(MODES) + 1)
    for row, what in ROWS.items():
        proof = found[row]
        cells = [proof.cell(mode, what.absent) for mode in MODES]
        if len(set(cells)) == 1:
            cells = [cells[0], *(["same"] * (len(MODES) - 1))] if cells[0] != "NOT TESTED" else cells
        tests = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in proof.tests)
        yield f"| {row} | {what.attack} | {' | '.join(cells)} | {tests} |"


def page(items: Iterable[pytest.Item]) -> str:
    """The whole page, from every test in the files that mark any, in any order of files."""
    found = proofs(sorted(items, key=lambda item: item.path))
    cells = {
        (row, mode): {result.verdict for result in found[row].results.get(mode, {})}
        for row, what in ROWS.items() for mode in MODES if mode not in what.absent
    }  # fmt: skip
    counts = {verdict: sum(verdict in told for told in cells.values()) for verdict in ("stopped", "open", "out")}
    untested = sum(not told for told in cells.values())
    killed = {row for mutant in MUTANTS.values() for row in mutant.rows}
    stopped = {row for (row, _), told in cells.items() if "stopped" in told}
    lines = [
        HEAD,
        f"Cells: {len(cells)} (row × mode). Stopped {counts['stopped']}, open {counts['open']}, out {counts['out']}, "
        f"NOT TESTED {untested}. Mutants: {len(MUTANTS)}, for {len(killed & stopped)} of {len(stopped)} stopped rows.\n",
        *table(found),
        "\n## Defences that were taken away\n",
        "| mutant | what is missing | rows | test that then fails |\n|---|---|---|---|",
        *(f"| `{name}` | {m.what} | {' '.join(m.rows)} | `{m.test.removeprefix('tests/')}` |" for name, m in MUTANTS.items()),
        "\n## Stopped, and without a mutant yet\n",
        ", ".join(sorted(stopped - killed)) or "None.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(check: bool) -> int:
    """Write, or with `check` compare."""
    new = page(collected())
    stale = new != PAGE.read_text()
    if stale and not check:
        PAGE.write_text(new)
    if stale:
        print(f"{'out of date' if check else 'written'}: {PAGE.name}")
    return int(check and stale)


if __name__ == "__main__":
    raise SystemExit(main("--check" in sys.argv[1:]))
