"""What a session's runner does while no life stands: how long it waits, and what it tells an owner whose pause ran out."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.holders.inbox import Inboxes
from orchestrator.runner.session_runner import SessionRunner, _pause_over
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.state import SessionState
from shared.errors import Unavailable
from shared.service.changes import Changes, Stopping
from tests.orchestrator.orchestrator_samples import SESSION, manifest

WAIT_S = 0.2
OTHER = "s_bbbbbbbbbbbbbbbb"


async def _wait(changes: Changes, wishes: Wishes) -> float:
    """Seconds that the wait between two lives took."""
    state = SimpleNamespace(id="s_1", pause_asked=False, cancel_asked=False, asked_by="")
    book = SimpleNamespace(state=state, changes=changes, announce=changes.notify)

    async def reopen(session: str) -> Any:
        return book

    runner = cast(Any, object.__new__(SessionRunner))
    runner._house, runner.book, runner.wishes = (
        SimpleNamespace(timer=time.monotonic, catalogue=SimpleNamespace(reopen=reopen)),
        book,
        wishes,
    )
    began = time.monotonic()
    await runner._wait(Unavailable("away"), WAIT_S)
    return time.monotonic() - began


async def test_who_repeats_a_word_shortens_no_wait() -> None:
    """Else whoever is enrolled could use up the session's tries while the GPU is away."""
    changes = Changes()

    async def repeat() -> None:
        while True:
            changes.notify()
            await asyncio.sleep(0.001)

    talking = asyncio.create_task(repeat())
    try:
        assert await _wait(changes, Wishes(changes)) >= WAIT_S
    finally:
        talking.cancel()


async def test_an_owners_wish_ends_the_wait() -> None:
    changes = Changes()
    wishes = Wishes(changes)
    asyncio.get_running_loop().call_soon(wishes.wish, "cancel", "alice")
    async with asyncio.timeout(10):
        await asyncio.gather(*[_wait(changes, wishes)])
    assert wishes.cancel


@pytest.mark.parametrize(
    ("changes", "goes_on"), [({}, True), ({"continuation": "refused"}, False), ({"accumulate": "tour"}, False)]
)
def test_a_pause_that_ran_out_names_only_a_way_that_is_open(changes: dict[str, Any], goes_on: bool) -> None:
    state = SessionState("s_1", manifest().model_copy(update=changes), "alice", "gpu-0")
    over = _pause_over(state, 5.0)
    assert ("gput session succeed s_1" in (over.remedy or "")) is goes_on


async def test_a_life_that_is_gone_takes_its_offers_back() -> None:
    """They are sealed for channels of that life: a holder that starts would open another one for them, and recall its own visit."""
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    for kind in ("offer", "receipt"):
        inboxes.post("city", kind=kind, session=OTHER)
        inboxes.post("city", kind=kind, session=SESSION)
    forgotten = list[str]()
    visit = SimpleNamespace(id="v_1", holder="city")
    run = SimpleNamespace(
        give_up=lambda: None,
        life=SimpleNamespace(close=lambda: None),
        state=SimpleNamespace(id=SESSION, open_visits=[visit]),
    )
    runner = cast(Any, object.__new__(SessionRunner))
    runner._house = SimpleNamespace(arrivals=SimpleNamespace(forget=forgotten.append), inboxes=inboxes)
    runner.run, runner.channels = run, None
    runner._drop_life()
    assert forgotten == ["v_1"]
    left = [(item.session, item.kind) for item in inboxes._box("city").items]
    assert left == [(OTHER, "offer"), (OTHER, "receipt"), (SESSION, "receipt")]
