"""An inbox full of sessions that were never offered here costs this holder a task and a call at a time, and keeps it from nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from data_holder import strangers
from data_holder.links import MOST_CALLS, OrchestratorLink
from shared.errors import Unavailable
from shared.service.http import Peers
from shared.wire.visit import MOST_ITEMS
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import ORCHESTRATOR, SESSION, make_manifest

ENDED = {"kind": "ended", "phase": "COMPLETED"}


def made_up(first: int, count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"seq": 0, "session": f"s_{number:016d}", **ENDED, **fields} for number in range(first, first + count)]


class Wire:
    """What the orchestrator is told of ends, to which a `silent` one does not answer; each of `answers` is what its inbox says next."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch, *, silent: bool = False) -> None:
        self.told, self.open, self.most = list[str](), 0, 0
        self.answers, self.silent = list[list[dict[str, Any]]](), silent
        self._running, self._answer, self._inbox = running, running.orchestrator._answer, running.orchestrator._inbox
        monkeypatch.setattr(running.orchestrator, "_answer", self._answers)
        monkeypatch.setattr(running.orchestrator, "_inbox", self._says)

    async def _answers(self, request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if not path.endswith("/end"):
            return await self._answer(request, path, body)
        self.open, self.told = self.open + 1, [*self.told, path]
        self.most = max(self.most, self.open)
        try:
            if self.silent:
                await asyncio.Event().wait()
            return httpx2.Response(204)
        finally:
            self.open -= 1

    async def _says(self, after: int) -> httpx2.Response:
        if self.answers:
            return httpx2.Response(200, json={"items": self.answers.pop(0), "next": after})
        return await self._inbox(after)

    async def say(self, *answers: list[dict[str, Any]]) -> None:
        """Until the holder has them all and asks on."""
        self.answers.extend(answers)
        self._running.orchestrator.changed.set()
        await self._running.until(lambda: not self.answers)
        await self._running.until(lambda: self._running.holder.runner.listening.connected)


@pytest.mark.parametrize("kind", ["ended", "channel_wanted", "receipt"])
async def test_fifty_thousand_made_up_sessions_cost_one_task(
    running: Running, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    wire = Wire(running, monkeypatch, silent=True)
    tasks, before = list[int](), len(asyncio.all_tasks())
    take = running.holder.runner._strangers.take
    monkeypatch.setattr(
        running.holder.runner._strangers, "take", lambda item: (take(item), tasks.append(len(asyncio.all_tasks())))
    )
    count = MOST_ITEMS - 1
    await wire.say(*(made_up(first, count, kind=kind) for first in range(0, 50_000, count)))
    assert max(tasks) <= before + 10
    assert wire.most <= 1
    assert running.holder.runner._workers == {}
    assert (await running.client.get("/livez")).status_code == 200
    await running.approved_with_channel()  # whoever waits for an answer that does not come keeps no session waiting


async def test_an_answer_of_more_items_than_anybody_has_is_not_read(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(running, monkeypatch)
    seen = list[Unavailable]()
    met = running.holder.runner.listening._away.met
    monkeypatch.setattr(running.holder.runner.listening._away, "met", lambda error: (seen.append(error), met(error)))
    await wire.say(made_up(0, 50_000))
    await running.until(lambda: seen)
    assert [error.code for error in seen] == ["malformed-inbox"]
    assert f"{MOST_ITEMS} in one answer" in str(seen[0].expected)
    await running.until(lambda: running.holder.runner.listening.connected)
    assert wire.told == []


async def test_true_ends_of_sessions_that_are_not_known_are_all_told(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as an orchestrator says at once: this holder may have lost what it kept of them."""
    wire = Wire(running, monkeypatch)
    await wire.say(made_up(0, 250))
    await running.until(lambda: len(wire.told) == 250)
    assert len(set(wire.told)) == 250
    assert wire.most == 1
    assert not running.holder.runner._undone


async def test_what_there_is_no_room_for_is_passed_over_and_later_ones_are_not(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(running, monkeypatch)
    await wire.say(made_up(0, strangers.MOST + 500))
    await running.until(lambda: len(wire.told) >= strangers.MOST and not running.holder.runner._strangers._passed_over)
    told = len(wire.told)
    assert told < strangers.MOST + 500
    await wire.say(made_up(100_000, 1))
    await running.until(lambda: len(wire.told) == told + 1)


async def test_an_end_behind_its_own_request_is_that_sessions(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in one answer: the session is not known yet when its end is read."""
    wire = Wire(running, monkeypatch)
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    wanted = running.orchestrator.items.pop()
    await wire.say([wanted, {"seq": 0, "session": SESSION, **ENDED}])
    await running.until(lambda: running.holder.ledger.knows(SESSION))
    await running.until(lambda: running.holder.ledger.state(SESSION).ended == "COMPLETED")


class Silent(httpx2.AsyncBaseTransport):
    """Answers nothing but news."""

    def __init__(self) -> None:
        self.open, self.may = 0, asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/inbox":
            self.open += 1
            await self.may.wait()
            self.open -= 1
        return httpx2.Response(200, json={})


async def test_calls_of_the_orchestrator_wait_for_one_another_and_news_for_none() -> None:
    there = Silent()
    async with Peers(transports={ORCHESTRATOR: there}) as peers:
        link = OrchestratorLink(peers.peer(ORCHESTRATOR, "the orchestrator"))
        calls = [asyncio.create_task(link.get_json(f"/v1/{number}")) for number in range(MOST_CALLS * 3)]
        while there.open < MOST_CALLS:  # noqa: ASYNC110  # no event is given for it
            await asyncio.sleep(0)
        assert await link.news("/v1/inbox", params={"after": 0}, timeout_s=5) == {}
        assert there.open == MOST_CALLS
        there.may.set()
        assert await asyncio.gather(*calls) == [{}] * len(calls)
