"""What is owed after a session's end stays owed, whatever shows itself later in the same line of the session's row."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from data_holder import runner
from data_holder.awaiting import Awaiting
from data_holder.datasets import RecordTree
from data_holder.deciding import Word
from data_holder.ending import AWAY, OWED
from data_holder.opening import NOT_TRUSTED
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_requests import request_waits
from tests.data_holder.holder_world import SESSION, make_manifest, problem
from tests.data_holder.test_ending import awaited, missed, wired
from tests.data_holder.test_holder_distrust import counted, false_report
from tests.data_holder.test_holder_receipts import stored


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)


async def test_an_end_heard_while_an_approval_reads_its_data_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far the reading was stood where it says what is owed: the end was never told again."""
    free, held, leaves = threading.Event(), threading.Event(), RecordTree._leaves

    def slow(self: RecordTree, indexes: Any) -> list[bytes]:
        held.set()
        assert free.wait(60)
        return leaves(self, indexes)

    monkeypatch.setattr(RecordTree, "_leaves", slow)
    async with start(approve="manual") as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        request = await request_waits(running, "this holder's operator")
        body = {"manifest": request["manifest"], "dataset": "ehr"}
        approving = asyncio.create_task(running.client.post(f"/v1/requests/{SESSION}/approve", json=body))
        try:
            await running.until(held.is_set)
            away = asyncio.Event()
            away.set()
            told = answering(
                running, monkeypatch, "/end", lambda number: problem(503, "Away", "away") if away.is_set() else None
            )
            running.orchestrator.post("ended", phase="CANCELLED")
            await running.until(lambda: len(told) > 1)
            await running.holder.approvals._busy(SESSION, "hashing, 60 % of 50 records")
            assert await awaited(running) == OWED
            tries = len(told)
            away.clear()
            await running.until(lambda: len(told) > tries)
            shown = await request_waits(running, "None")
            assert (shown["state"], shown["phase"]) == ("ended", "CANCELLED")
        finally:
            free.set()
        assert (await approving).json()["code"] == "session-ended"
        assert await running.get(f"/v1/requests/{SESSION}") == shown


async def test_an_orchestrator_that_is_not_trusted_after_the_end_still_owes_the_receipts(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key was away at the end; a channel that was refused afterwards had the last receipts never asked for again."""
    await missed(running)
    with monkeypatch.context() as patch:
        answering(running, patch, "/receipts", lambda number: problem(503, "Unavailable", AWAY))
        patch.setattr(running.orchestrator, "_gpu", false_report)
        running.orchestrator.post("ended", phase="COMPLETED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        running.orchestrator.post("channel_wanted")
        await running.until(lambda: counted(running))
        await running.until(lambda: SESSION not in running.holder.runner._workers)
    assert await awaited(running) == OWED
    running.orchestrator.post("ended", phase="COMPLETED")
    assert (await stored(running))["verified"]
    await running.until(lambda: SESSION not in running.holder.runner._workers)
    assert await awaited(running) is None


async def test_what_an_earlier_release_showed_over_what_is_owed_is_owed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await missed(running)
    await running.holder.approvals.ended(SESSION, "COMPLETED", f"{NOT_TRUSTED} (gpu-report: bad report)")
    asked, _ = wired(running, monkeypatch, held=False)
    running.orchestrator.post("ended", phase="COMPLETED")
    assert (await stored(running))["verified"]
    await running.until(lambda: SESSION not in running.holder.runner._workers)
    assert await awaited(running) is None
    before = len(asked)
    await running.holder.runner._ending.hear(SESSION, "COMPLETED")
    assert len(asked) == before, "nothing is owed any more"


async def test_a_veto_that_is_made_as_the_end_comes_leaves_what_is_owed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end was being committed when the veto looked whether there was one."""
    await missed(running)
    approvals = running.holder.approvals
    manifest = (await running.get(f"/v1/requests/{SESSION}"))["manifest"]
    record, ended = running.holder.ledger.record, list[str]()

    async def ending_first(*arguments: Any, **options: Any) -> Any:
        if not ended:
            ended.append(SESSION)
            await approvals.ended(SESSION, "FAILED", OWED)
        return await record(*arguments, **options)

    monkeypatch.setattr(running.holder.ledger, "record", ending_first)
    await approvals.decide(SESSION, Word(manifest, "veto", reason="consent"), by="operator")
    shown = await running.get(f"/v1/requests/{SESSION}")
    assert (shown["state"], shown["waiting_for"], shown["decided_by"]) == ("ended", OWED, "operator")


async def test_what_is_found_after_the_end_is_not_shown(running: Running) -> None:
    await missed(running)
    await running.holder.approvals.ended(SESSION, "FAILED", OWED)
    before = await running.get(f"/v1/requests/{SESSION}")
    await running.holder.approvals.put_before(SESSION, [], "this holder's policy")
    await Awaiting(running.holder.approvals._store).show(SESSION, "somebody")
    assert await running.get(f"/v1/requests/{SESSION}") == before
