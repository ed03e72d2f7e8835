"""kill -9 of any process at any step of a session: it ends with the undisturbed run's model, each effect once, and no law is broken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.cells import (
    AGENT,
    COLLECT_WAYS,
    COLLECTED,
    DATABASE,
    QUICK,
    WAYS,
    WIPED,
    Cell,
    Way,
    commands,
    matrix,
)
from tests.crash.play import CrashPlay
from tests.crash.reaper import Reaper
from tests.laws.stage import Theatre
from tests.world.world_recorder import Ordered

CELLS = [pytest.param(cell, id=str(cell), marks=() if cell in QUICK else pytest.mark.slow) for cell in matrix()]


@pytest.mark.parametrize("cell", CELLS)
def test_any_process_may_die_at_any_step(
    cell: Cell, theatre: Theatre, untouched: CrashPlay, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    way = _way(cell)
    if way.early:
        untouched = request.getfixturevalue("untouched_early")
    if way.tours:
        kind = {"accumulate": "untouched_tours", "collect": "untouched_collected"}[way.tours]
        untouched = request.getfixturevalue(kind)
    url = str(request.getfixturevalue("postgres_url")) if cell.victim == DATABASE else ""
    play = CrashPlay(
        theatre, tmp_path / "world", [], reaper=Reaper(cell, _nth(cell, way, untouched)), way=way, database_url=url
    )
    case = play.run()
    assert case.view["phase"] == "COMPLETED", case.view["failure"]
    for name in ("digest", "sha256"):
        assert case.view["model"][name] == untouched.case.view["model"][name]
    closed = Counter(visit["index"] for visit in case.visits if visit["outcome"] == "closed")
    assert set(closed) == {visit["index"] for visit in untouched.case.visits}
    receipts = Counter(receipt["receipt"]["index"] for receipt in play.receipts)
    assert receipts == closed, "one receipt for each time a visit was closed"
    # What a GPU that lost its memory had trained since the last checkpoint is trained again, and says so by a receipt of its own.
    assert cell.victim == AGENT or way.power_lost_at or set(closed.values()) == {1}, "each visit takes effect once"


def _way(cell: Cell) -> Way:
    if cell.collect:
        return COLLECT_WAYS.get(cell.step, COLLECTED)
    return WIPED if cell.refill else WAYS.get(cell.step, Way())


def _nth(cell: Cell, way: Way, untouched: CrashPlay) -> int:
    """The second time, where a session comes there twice: by then something can be lost. The first time where something led there."""
    undisturbed = COLLECTED if cell.collect else Way()
    if way != undisturbed and not cell.refill:
        return 1
    if cell.step not in commands() and cell.kind == "message":
        return 2
    batches = [event.commands for event in untouched.case.timeline if isinstance(event, Ordered)]
    ran = sum(any(type(one).__name__ == cell.step for one in batch) for batch in batches)
    often = untouched.reaper.seen[cell.actor, cell.step] if cell.kind == "commit" else ran
    return often + 1 if cell.refill else min(2, often)
