"""The end of a session at a holder: what is owed is collected and told, whatever came in between; what is false is not told to be well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from data_holder import approvals, runner
from data_holder.ending import OWED, Ending
from shared.errors import GputError, Unavailable, VerificationFailed
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import HEALING, once
from tests.data_holder.holder_world import SESSION, b64, make_manifest, problem
from tests.data_holder.test_holder_receipts import stored, visited

Wire = Callable[[httpx2.Request, str, bytes], Awaitable[httpx2.Response]]


async def awaited(running: Running) -> str | None:
    return await running.holder.runner._approvals.awaiting.shown(SESSION)


async def missed(running: Running) -> None:
    """The visit's receipt is in the log, and did not reach the holder."""
    document, report = await visited(running)
    cose = running.orchestrator.make_receipt(document, report)
    running.orchestrator.leaves.append(cose)
    running.orchestrator.receipts = [{"index": 0, "holder": "north", "cose": b64(cose)}]


def wired(running: Running, monkeypatch: pytest.MonkeyPatch, held: bool) -> tuple[list[str], asyncio.Event]:
    """Paths that the orchestrator is asked for from now on, and when it is asked for receipts; `held`: these it does not answer."""
    asked, receipts, answer = list[str](), asyncio.Event(), running.orchestrator._answer

    async def watched(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        asked.append(f"{request.method} {path}")
        if path.endswith("/receipts"):
            receipts.set()
            if held:
                await asyncio.Event().wait()
        return await answer(request, path, body)

    monkeypatch.setattr(running.orchestrator, "_answer", watched)
    return asked, receipts


TOLD = f"PUT /v1/sessions/{SESSION}/end"


async def test_stopped_while_it_collects_it_collects_and_tells_when_it_hears_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had written down that nothing was owed, and so its last receipts never came, nor did the orchestrator hear that it has them."""
    async with start() as running:
        await missed(running)
        with monkeypatch.context() as patch:
            asked, fetching = wired(running, patch, held=True)
            running.orchestrator.post("ended", phase="COMPLETED")
            async with asyncio.timeout(60):
                await fetching.wait()
            held = running.holder.runner._workers[SESSION]
            held.cancel()
            await asyncio.wait([held])
        assert TOLD not in asked
    running.orchestrator.items.clear()
    async with start() as again:
        asked, _ = wired(again, monkeypatch, held=False)
        assert not (await again.get("/v1/receipts"))["items"]
        again.orchestrator.post("ended", phase="COMPLETED")
        assert (await stored(again))["verified"]
        await again.until(lambda: TOLD in asked)
        await again.until(lambda: again.holder.ledger.state(SESSION).ended)


@pytest.mark.parametrize("part", ["/receipts", "/log/head", "/log/leaves", "/end"])
@pytest.mark.parametrize("bad", HEALING)
async def test_one_bad_answer_does_not_lose_the_last_receipts(
    running: Running, monkeypatch: pytest.MonkeyPatch, bad: str, part: str
) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    await missed(running)
    asked = once(running, monkeypatch, part, bad)
    running.orchestrator.post("ended", phase="COMPLETED")
    assert (await stored(running))["verified"]
    await running.until(lambda: len(asked) == 2)
    await running.until(lambda: SESSION not in running.holder.runner._workers)
    assert running.holder.ledger.state(SESSION).ended
    assert await awaited(running) is None


FAILURES: dict[str, tuple[Exception, str | None]] = {
    "not there": (Unavailable("away"), OWED),
    "forged": (VerificationFailed("forged"), None),
    "a fault of the program": (KeyError("items"), OWED),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_what_is_owed_after_a_failure(running: Running, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    error, owed = FAILURES[failure]
    await missed(running)
    engine: Any = running.holder.runner
    ending: Ending = engine._ending
    asked, _ = wired(running, monkeypatch, held=False)
    with monkeypatch.context() as patch:
        patch.setattr(engine._receipts, "fetch_missed", Mock(side_effect=error))
        with pytest.raises(type(error)):
            await ending.hear(SESSION, "COMPLETED")
    assert (running.holder.ledger.state(SESSION).ended, await awaited(running)) == ("COMPLETED", owed)
    assert TOLD not in asked
    await ending.hear(SESSION, "COMPLETED")
    assert (TOLD in asked) is (owed is not None)
    assert await awaited(running) is None


async def test_of_ends_of_sessions_that_were_never_heard_of_nothing_is_kept(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of them can be made up, each to be told again every second to who does not answer."""
    engine: Any = running.holder.runner
    asked, _ = wired(running, monkeypatch, held=False)
    answer = running.orchestrator._answer

    async def away(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        said = await answer(request, path, body)
        return problem(503, "Away", "away") if path.endswith("/end") else said

    monkeypatch.setattr(running.orchestrator, "_answer", away)
    name = "s_" + "f" * 16
    running.orchestrator.post("ended", phase="COMPLETED", session=name)
    await running.until(lambda: f"PUT /v1/sessions/{name}/end" in asked and name not in engine._workers)
    assert not engine._again.of(name)
    assert not engine._undone


@pytest.mark.parametrize("error", [Unavailable("away"), KeyError("items")])
async def test_an_end_that_is_not_done_yet_is_told_once(
    running: Running, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is heard again every second: each time it was a line in the log, of a fault of the program with all its frames."""
    await missed(running)
    engine: Any = running.holder.runner
    log, tries, fetch = Mock(), list[int](), engine._receipts.fetch_missed
    monkeypatch.setattr(runner, "_log", log)

    async def failing(session: str) -> None:
        tries.append(1)
        if len(tries) <= 3:
            raise error
        await fetch(session)

    monkeypatch.setattr(engine._receipts, "fetch_missed", failing)
    running.orchestrator.post("ended", phase="COMPLETED")
    assert (await stored(running))["verified"]
    await running.until(lambda: not engine._undone)
    told = [call.args[0] for call in (*log.warning.call_args_list, *log.exception.call_args_list)]
    assert sorted(told) == ["a fault in this program", "ended not done yet"][isinstance(error, GputError) :]
    log.info.assert_called_once_with("over: ended not done yet", session=SESSION)


async def test_an_end_that_the_orchestrator_takes_back_is_none(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said over an old copy of its database, and the newest is there again: heard again later, it must not end the session here."""
    await missed(running)
    engine: Any = running.holder.runner
    ending: Ending = engine._ending
    with monkeypatch.context() as patch:
        patch.setattr(engine._receipts, "fetch_missed", Mock(side_effect=Unavailable("away")))
        with pytest.raises(Unavailable):
            await ending.hear(SESSION, "FAILED")
    assert (running.holder.ledger.state(SESSION).ended, await awaited(running)) == ("FAILED", OWED)
    answer = running.orchestrator._answer

    async def goes_on(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if path.endswith("/end"):
            return problem(409, "Conflict", "session-not-ended")
        return await answer(request, path, body)

    with monkeypatch.context() as patch:
        patch.setattr(running.orchestrator, "_answer", goes_on)
        await ending.hear(SESSION, "FAILED")
    assert running.holder.ledger.state(SESSION).ended is None
    shown = await running.get(f"/v1/requests/{SESSION}")
    assert (shown["state"], shown["phase"], shown["waiting_for"]) == ("approved", None, None)
    await ending.hear(SESSION, "COMPLETED")
    assert running.holder.ledger.state(SESSION).ended == "COMPLETED"


ENDS = {
    "COMPLETED": "COMPLETED", "FAILED": "FAILED", "CANCELLED": "CANCELLED", "RUNNING": "ENDED", "": "ENDED", None: "ENDED",
    "\x1b[2J" + "X" * 1000: "ENDED",
}  # fmt: skip


@pytest.mark.parametrize("said", ENDS)
async def test_an_end_is_kept_shown_and_told_by_a_name_of_its_table(
    running: Running, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    """What was said was stored as it was, shown to the operator's terminal, and too long for the database tried for ever."""
    log = Mock()
    monkeypatch.setattr(approvals, "_log", log)
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)
    running.orchestrator.post("ended", phase=said)
    await running.until(lambda: log.info.call_args.args == ("session ended",))
    assert log.info.call_args.kwargs == {"session": SESSION, "phase": ENDS[said]}
    assert running.holder.ledger.state(SESSION).ended == ENDS[said]
    assert (await running.get(f"/v1/requests/{SESSION}"))["phase"] == ENDS[said]


async def test_a_veto_stays_one_and_is_said_again_when_its_session_goes_on(running: Running) -> None:
    """The newest copy that was put back may be older than the veto."""
    await missed(running)
    shown = await running.get(f"/v1/requests/{SESSION}")
    said = {"manifest": shown["manifest"], "reason": "consent"}
    await running.client.post(f"/v1/requests/{SESSION}/veto", json=said)
    await running.until(lambda: running.orchestrator.approvals[-1].decision == "veto")
    await running.until(lambda: running.attempt_phase(1) is None)  # the worker is done with the veto
    ending = running.holder.runner._ending
    await ending.hear(SESSION, "FAILED")
    before = len(running.orchestrator.approvals)
    await ending.taken_back(SESSION)
    shown = await running.get(f"/v1/requests/{SESSION}")
    assert (shown["state"], shown["phase"]) == ("vetoed", None)
    await running.until(lambda: len(running.orchestrator.approvals) > before)
    assert running.orchestrator.approvals[-1].decision == "veto"


async def test_a_session_that_went_on_is_kept_from_its_last_end_on(running: Running) -> None:
    await missed(running)
    holder, clock = running.holder, running.clock
    ending, retention = holder.runner._ending, holder.runner.retention
    retention._keep_s = 1000.0
    await ending.hear(SESSION, "FAILED")
    clock.now += 900
    await ending.taken_back(SESSION)
    clock.now += 900
    await retention.sweep()
    assert holder.ledger.knows(SESSION), "it goes on"
    await ending.hear(SESSION, "COMPLETED")
    clock.now += 900
    await retention.sweep()
    assert holder.ledger.knows(SESSION), "its end is not long ago"
    clock.now += 200
    await retention.sweep()
    assert not holder.ledger.knows(SESSION)
