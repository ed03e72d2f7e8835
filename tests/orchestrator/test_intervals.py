"""What lasts so long lasts so long, however the machine's clock is put meanwhile; and what a cancelled session left open is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.runner.pace import CheckpointPace
from orchestrator.runner.rounds import Rounds
from orchestrator.runner.supervisor import Supervisor
from tests.orchestrator.orchestrator_samples import SESSION, Room, planned
from tests.orchestrator.test_head_collection import started


@pytest.mark.parametrize("put", [-3600.0, 3600.0])
async def test_a_checkpoint_is_due_by_the_timer(put: float) -> None:
    times = {"clock": 1e9, "timer": 7.0}
    run = SimpleNamespace(
        clock=lambda: times["clock"], timer=lambda: times["timer"], state=SimpleNamespace(gathered=[]), gone=None,
        watch=SimpleNamespace(seconds={"train": 60.0}),
    )  # fmt: skip
    made = list[float]()

    async def checkpoint() -> None:
        made.append(times["timer"])

    rounds = cast(Any, object.__new__(Rounds))
    rounds._run, rounds._pace, rounds.checkpoint = run, CheckpointPace(5.0, 1.0, times["timer"], 0.0), checkpoint
    times["clock"] += put
    await rounds._checkpoint_if_due()
    assert made == []
    times["timer"] += 5.0
    await rounds._checkpoint_if_due()
    assert made == [12.0]


async def test_a_session_without_a_runner_ends_with_the_visits_that_its_last_life_left_open(tmp_path: Path) -> None:
    room, told = Room(tmp_path), list[str]()
    book = await started(room)
    book.stage(planned(book.state, "v_9"))
    await book.commit()

    async def look() -> None:
        told.append("looked")

    supervisor = cast(Any, object.__new__(Supervisor))
    supervisor._runners, supervisor._ended, supervisor.look = {}, lambda book: told.append("told"), look
    await supervisor.cancel(book, "alice")
    facts = await room.store.read(lambda c: room.journal().load(c, SESSION))
    assert [fact.kind for fact in facts[-2:]] == ["visit.recalled", "session.cancelled"]
    assert (facts[-2].body["visit"], facts[-2].body["leaf"]["index"]) == ("v_9", 3)
    assert told == ["told", "looked"]
    await room.store.close()
