"""A veto counts from its commit on, whatever else is under way: an offer's admission, an answer, an end that nobody proved."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from data_holder import runner
from data_holder.ending import OWED
from data_holder.links import MOST_CALLS, MOST_UNHURRIED
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import SESSION, make_manifest, problem
from tests.data_holder.test_holder_approvals import asked
from tests.data_holder.test_holder_visits import visit

REQUEST = f"/v1/requests/{SESSION}"


async def vetoed(running: Running) -> dict[str, Any]:
    said = {"manifest": (await running.get(REQUEST))["manifest"], "reason": "consent"}
    answer = await running.client.post(f"{REQUEST}/veto", json=said)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_no_visit_begins_whose_offer_was_being_admitted(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has something to do between offer and veto, so that what the veto leaves to it comes too late."""
    await running.approved_with_channel()
    orchestrator = running.orchestrator
    orchestrator.leaves.append(b"a")
    await visit(running)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    calls, answer = running.gpu.calls, orchestrator._answer
    proof_asked, proof, statement = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if path.endswith("/consistency"):
            proof_asked.set()
            await proof.wait()
        if path.endswith("/heads"):
            await statement.wait()
        return await answer(request, path, body)

    monkeypatch.setattr(orchestrator, "_answer", slow)
    orchestrator.leaves.append(b"b")
    await visit(running, epoch=2, visit="v_0000000000000002", round=2, log_from=0)
    orchestrator.ask_head("11" * 32)
    await proof_asked.wait()
    assert (await vetoed(running))["state"] == "vetoed"
    proof.set()
    await running.until(lambda: orchestrator.refusals)
    assert (orchestrator.refusals[0]["code"], orchestrator.refusals[0]["epoch"]) == ("vetoed", 2)
    statement.set()
    await running.until(lambda: running.open_channel() is None)
    assert running.attempt_phase(2) is None
    assert running.gpu.calls == calls


async def test_an_approvals_late_answer_does_not_stand_for_a_veto(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(approve="manual") as running:
        shown = await asked(running)
        orchestrator, answer = running.orchestrator, running.orchestrator._answer
        taken, go, away = asyncio.Event(), asyncio.Event(), True

        async def slow(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
            if not path.endswith("/approvals"):
                return await answer(request, path, body)
            if not taken.is_set():
                taken.set()
                found = await answer(request, path, body)
                await go.wait()
                return found
            return problem(503, "Unavailable", "not-leading") if away else await answer(request, path, body)

        monkeypatch.setattr(orchestrator, "_answer", slow)
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        first = asyncio.create_task(running.client.post(f"{REQUEST}/approve", json=body))
        await taken.wait()
        assert (await vetoed(running))["delivered"] is False
        go.set()
        await first
        assert (await running.get(REQUEST))["delivered"] is False
        away = False
        await running.until(lambda: orchestrator.approvals[-1].decision == "veto")


@pytest.mark.parametrize("away", [False, True])
async def test_an_end_that_nobody_proved_takes_no_veto_away(
    running: Running, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """Whoever writes the inbox says that it is over, and answers 404, or nothing, to every question about it."""
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    orchestrator, answer = running.orchestrator, running.orchestrator._answer

    async def platform(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if path.endswith(("/log/head", "/end")):
            return problem(503, "Unavailable", "x") if away else problem(404, "Not found", "not-found")
        return await answer(request, path, body)

    with monkeypatch.context() as patch:
        patch.setattr(orchestrator, "_answer", platform)
        orchestrator.post("ended", phase="COMPLETED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        shown = await vetoed(running)
        assert (shown["state"], shown["waiting_for"]) == ("ended", OWED if away else None)
        await running.until(lambda: orchestrator.approvals[-1].decision == "veto")
        calls = running.gpu.calls
        await visit(running, epoch=2, visit="v_0000000000000002", round=2)
        orchestrator.post("channel_wanted")
        orchestrator.ask_head("11" * 32)
        await running.until(lambda: orchestrator.head_statements)  # what was said before is done with
    assert running.gpu.calls == calls
    await running.holder.runner._ending.taken_back(SESSION)
    assert (await running.get(REQUEST))["state"] == "vetoed"


async def test_of_what_was_vetoed_no_channel_is_opened_at_a_start(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start had told of it as of something that was not done yet."""
    async with start() as running:
        await running.approved_with_channel()
        await vetoed(running)
        await running.until(lambda: running.orchestrator.approvals[-1].decision == "veto")
    running.orchestrator.items.clear()
    log = Mock()
    monkeypatch.setattr(runner, "_log", log)
    async with start() as again:
        again.orchestrator.ask_head("11" * 32)
        await again.until(lambda: again.orchestrator.head_statements)  # it has begun, and listens
        assert again.open_channel() is None
    assert not log.warning.called


async def test_a_session_that_was_not_decided_before_its_end_and_goes_on_is_decided(start: Start) -> None:
    """The end was said over an old copy of the orchestrator's database; it asks again only for a session that goes on."""
    async with start(approve="manual") as running:
        await asked(running)
        running.orchestrator.post("ended", phase="CANCELLED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        running.orchestrator.items.clear()
    async with start(approve="manual") as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.state(SESSION).ended is None)
        running.orchestrator.ask_head("22" * 32)
        await running.until(lambda: running.orchestrator.head_statements)
        shown = await running.get(REQUEST)
        assert (shown["state"], shown["phase"]) == ("waiting", None)
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        approved = await running.client.post(f"{REQUEST}/approve", json=body)
        assert (approved.status_code, approved.json()["state"]) == (200, "approved")


async def test_a_veto_that_is_accepted_at_a_later_try_is_shown_as_that(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as accepted by nobody until the session's end, whatever the orchestrator said since."""
    await running.approved_with_channel()
    refusal = problem(403, "Not permitted", "key-not-enrolled")
    answering(running, monkeypatch, "/approvals", lambda number: refusal if number == 1 else None)
    shown = await vetoed(running)
    assert (shown["delivered"], shown["waiting_for"]) == (True, "nobody: the orchestrator answered key-not-enrolled")
    await running.holder.approvals.remind(SESSION)
    assert running.orchestrator.approvals[-1].decision == "veto"
    shown = await running.get(REQUEST)
    assert (shown["delivered"], shown["waiting_for"]) == (True, None)
    await running.holder.approvals.awaiting.show(SESSION, "somebody else")
    await running.holder.approvals.remind(SESSION)
    assert (await running.get(REQUEST))["waiting_for"] == "somebody else"


async def test_it_stands_behind_no_program_that_does_not_come(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sessions as there are calls at once, made up maybe, each with a program that the orchestrator's store does not give."""
    async with start(approve="manual") as running:
        shown, sessions = await asked(running), [f"s_{number:016d}" for number in range(MOST_CALLS + MOST_UNHURRIED)]
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"{REQUEST}/approve", json=body)).status_code == 200
        running.holder.approvals.programs._at_hand.clear()
        come, honest, hanging = asyncio.Event(), running.orchestrator._answer, list[str]()

        async def slow(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
            if path.endswith("/archive"):
                hanging.append(path)
                await come.wait()
            return await honest(request, path, body)

        monkeypatch.setattr(running.orchestrator, "_answer", slow)
        for number, session in enumerate(sessions):
            manifest = make_manifest(running.orchestrator_key(), name=f"study-{number}")
            running.orchestrator.ask_approval(manifest, session=session)
        await running.until(lambda: running.holder.runner._considering._taken >= {*sessions})
        await running.until(lambda: len(hanging) >= MOST_UNHURRIED)
        veto = asyncio.create_task(vetoed(running))
        await running.until(veto.done)
        assert (veto.result()["state"], veto.result()["delivered"]) == ("vetoed", True)
        assert (running.orchestrator.approvals[-1].decision, len(hanging)) == ("veto", MOST_UNHURRIED)
        come.set()
        await running.until(lambda: len(hanging) == len(sessions))
