"""A visit's timers at the holder: waiting while the GPU is elsewhere is in none of them, and an agent may say of time what it likes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest

from data_holder.channel import OpenChannel
from shared.wire.visit import Signed
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import problem
from tests.data_holder.test_holder_visits import visit


async def took_at_most_the_rest(running: Running, away_s: float, **options: Any) -> None:
    """Of a visit in which the GPU is away for so long. A ratio to this test's clock: whatever else it took, the wait is in no timer."""
    begun = time.perf_counter()
    await visit(running, **options)
    await running.until(lambda: running.orchestrator.reports)
    lasted = time.perf_counter() - begun
    timers = running.orchestrator.reports[0].timers
    assert timers.grab_gpu + timers.gpu_write <= lasted - away_s


async def test_waiting_for_the_gpu_is_no_time_of_the_visit(running: Running) -> None:
    await running.approved_with_channel()
    running.gpu.away_s = 0.3
    await took_at_most_the_rest(running, 0.3)


async def test_waiting_in_vain_is_no_time_of_the_visit_either(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who seals ahead waits through another's training, which may take longer than the agent keeps a request."""
    await running.approved_with_channel()
    answered, refusals = type(running.gpu).handle_async_request, 2

    async def later(gpu: Any, request: httpx2.Request) -> httpx2.Response:
        nonlocal refusals
        if refusals:
            refusals -= 1
            await asyncio.sleep(0.2)
            return problem(409, "Conflict", "port-not-bound")
        return await answered(gpu, request)

    monkeypatch.setattr(type(running.gpu), "handle_async_request", later)
    await took_at_most_the_rest(running, 0.4)


async def test_what_comes_before_the_gpu_is_there_is_grabbing_it_whatever_comes_after(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request without an answer is no waiting for the GPU; and a GPU that is called back once records came was there."""
    await running.approved_with_channel()
    answered, calls = type(running.gpu).handle_async_request, 0

    async def odd(gpu: Any, request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        if calls in (1, 3):
            await asyncio.sleep(0.2)
        if calls == 1:
            raise httpx2.ReadError("no answer")
        return problem(409, "Conflict", "port-not-bound") if calls == 3 else await answered(gpu, request)

    monkeypatch.setattr(type(running.gpu), "handle_async_request", odd)
    await visit(running, chunk_bytes=96)
    await running.until(lambda: running.orchestrator.reports)
    assert calls > 3
    assert running.orchestrator.reports[0].timers.grab_gpu >= 0.2


@pytest.mark.parametrize("said", ["port;dur=1e99", "port;dur=-1", "port;dur=999999999", "cache;dur=3"])
async def test_what_an_agent_says_of_time_breaks_nothing(running: Running, said: str, monkeypatch: Any) -> None:
    await running.approved_with_channel()
    taken = type(running.gpu).handle_async_request

    async def lying(gpu: Any, request: httpx2.Request) -> httpx2.Response:
        answer = await taken(gpu, request)
        answer.headers["server-timing"] = said
        return answer

    monkeypatch.setattr(type(running.gpu), "handle_async_request", lying)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert all(0 <= value < 3600 for value in running.orchestrator.reports[0].timers.model_dump().values())


async def test_the_next_key_is_made_while_nobody_waits_for_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.approved_with_channel()
    sent_by_then: list[int] = []
    made = OpenChannel.new_key

    def new_key(self: OpenChannel) -> Signed:
        sent_by_then.append(len(running.gpu.transcript))
        return made(self)

    monkeypatch.setattr(OpenChannel, "new_key", new_key)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert sent_by_then == [0], "behind the last record the orchestrator waits for the report"
