"""Workers of sessions: a session that nobody here knows, or that has ended, keeps nothing; what comes meanwhile is done all the same."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from shared.errors import Unavailable
from shared.wire.visit import InboxItem
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION, problem

MADE_UP = [f"s_{number:016d}" for number in range(30)]


class Handled:
    """Items in the order in which the holder was done with them; it waits before each until it `may`, and then meets its `fault`."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.items, self.begun = list[InboxItem](), list[InboxItem]()
        self.may, self.faults = asyncio.Event(), list[Exception]()
        self.may.set()
        self._handle = running.holder.runner._handle
        monkeypatch.setattr(running.holder.runner, "_handle", self)

    async def __call__(self, item: InboxItem) -> None:
        self.begun.append(item)
        await self.may.wait()
        try:
            if self.faults:
                raise self.faults.pop()
            await self._handle(item)
        finally:
            self.items.append(item)


@pytest.fixture
def handled(running: Running, monkeypatch: pytest.MonkeyPatch) -> Handled:
    return Handled(running, monkeypatch)


def kept(running: Running) -> set[str]:
    """Sessions of which anything is kept that serves them."""
    engine = running.holder.runner
    assert engine._queues.keys() == engine._workers.keys()
    return {*engine._queues, *(session for session, _ in engine._undone)}


@pytest.mark.parametrize("kind", ["channel_wanted", "share_wanted", "ended"])
async def test_of_sessions_that_somebody_made_up_nothing_is_kept(running: Running, handled: Handled, kind: str) -> None:
    """Whoever answers for the orchestrator had it keep a task for each name that came into its head."""
    for session in MADE_UP:
        running.orchestrator.post(kind, session=session)
    await running.until(lambda: len(handled.items) == len(MADE_UP))
    assert kept(running) == set()


async def test_a_session_that_goes_on_keeps_its_worker_until_its_end(running: Running, handled: Handled) -> None:
    await running.approved_with_channel()
    assert SESSION in running.holder.runner._workers
    running.orchestrator.post("ended", phase="COMPLETED")
    running.orchestrator.post("channel_wanted", session=MADE_UP[0])
    await running.until(lambda: {item.kind for item in handled.items[2:]} == {"ended", "channel_wanted"})
    assert kept(running) == set()


async def test_what_comes_for_a_session_while_its_worker_is_busy_is_done_behind_it(
    running: Running, handled: Handled
) -> None:
    handled.may.clear()
    running.orchestrator.post("approval_wanted", session=MADE_UP[0])  # without a manifest it comes to nothing
    await running.until(lambda: handled.begun)
    running.orchestrator.post("share_wanted", session=MADE_UP[0])
    await running.until(lambda: not running.holder.runner._queues[MADE_UP[0]].empty())
    handled.may.set()
    await running.until(lambda: len(handled.items) == 2)
    assert [item.kind for item in handled.items] == ["approval_wanted", "share_wanted"]
    assert kept(running) == set()
    running.orchestrator.post("ended", phase="FAILED", session=MADE_UP[0])
    await running.until(lambda: len(handled.items) == 3)
    assert kept(running) == set()


async def test_what_is_to_be_tried_again_is_tried_by_another_worker(running: Running, handled: Handled) -> None:
    handled.faults.append(Unavailable("away"))
    running.orchestrator.post("ended", phase="COMPLETED", session=MADE_UP[0])
    await running.until(lambda: len(handled.items) == 2)
    assert handled.items[0] is handled.items[1]
    assert kept(running) == set()


@pytest.mark.parametrize("place", [2**60, 2**53, -5])
async def test_a_place_in_the_inbox_that_there_is_not_makes_no_holder_deaf(
    running: Running, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Every question from there on was refused, and the holder, as ready as ever, asked it until its next start."""
    # As an orchestrator that says once where it is not, and takes no `after` that is none.
    told = list[int]()
    answer = running.orchestrator._inbox

    async def inbox(after: int) -> httpx2.Response:
        if not 0 <= after < 2**53:
            return problem(422, "Invalid request", "invalid-request")
        if not told:
            told.append(place)
            return httpx2.Response(200, json={"items": [], "next": place})
        return await answer(after)

    monkeypatch.setattr(running.orchestrator, "_inbox", inbox)
    running.orchestrator.changed.set()
    await running.until(lambda: told)
    await running.approved_with_channel()
