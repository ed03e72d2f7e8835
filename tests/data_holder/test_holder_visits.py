"""One visit end to end at the holder: provisioning, cuts, repeats, restarts, vetoes. The GPU end opens with real keys."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import numpy as np
import pytest

from data_holder import visits
from data_holder.carriers import HttpCarrier
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, visit_key


async def visit(running: Running, epoch: int = 1, **changes: Any) -> Any:
    key = visit_key(epoch)
    offer, document = running.orchestrator.make_offer(key, epoch=epoch, **changes)
    running.gpu.install(document, key)
    running.orchestrator.send_offer(offer)
    return document


async def test_a_visit_delivers_exactly_the_planned_records(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Mock()
    monkeypatch.setattr(visits, "_log", log)
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    report = running.orchestrator.reports[0]
    expected = np.load(running.holder.foundation.settings.datasets["ehr"])["x"][:20].tobytes()
    assert bytes(running.gpu.plain) == expected
    assert running.gpu.published
    assert (report.records, report.length) == (20, len(expected))
    assert all(value >= 0 for value in report.timers.model_dump().values())
    links = await running.get("/v1/links")
    assert links["dataset_bytes_to_gpu"] == len(expected)
    assert links["proof_bytes_to_gpu"] == len(running.gpu.proof) > 0  # counted apart from the records
    assert links["dataset_bytes_to_orchestrator"] == 0
    assert links["bytes_to_gpu"] == sum(map(len, running.gpu.transcript)) == report.bytes_sent
    for window in (expected[i : i + 16] for i in range(0, len(expected), 64)):
        assert not any(window in body for body in running.orchestrator.bodies)  # law L9
        assert not any(window in body for body in running.gpu.transcript)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    await running.until(lambda: log.info.called)
    assert log.info.call_args_list == [
        call("visit provisioned and reported", session=SESSION, visit=report.visit, epoch=1)
    ]
    [row] = (await running.get("/v1/visits"))["items"]
    assert row["phase"] == "REPORTED"
    assert row["commitment"] == report.commitment


async def test_large_chunks_go_through_the_ring_of_buffers(running: Running) -> None:
    from data_holder import sealed_ahead

    await running.approved_with_channel()
    before, sealed_ahead.INLINE_BYTES = sealed_ahead.INLINE_BYTES, 0  # every chunk sealed on a thread
    try:
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
    finally:
        sealed_ahead.INLINE_BYTES = before
    assert len(running.gpu.transcript) == 15  # 20 records of 64 bytes in chunks of 96, and the closing record
    running.gpu.one_ciphertext_per_counter()


@pytest.mark.parametrize("fault", [False, True])
async def test_a_long_proof_travels_in_records_of_its_own(
    running: Running, fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_holder import sealing

    monkeypatch.setattr(sealing, "MAX_INLINE_PROOF", 32)
    monkeypatch.setattr(HttpCarrier, "limit", 1)
    await running.approved_with_channel()
    if fault:
        running.gpu.cut_after = {20, 21}
    await visit(running, chunk_bytes=64)
    await running.until(lambda: running.orchestrator.reports)
    pieces = -(-len(running.gpu.proof) // 64)
    assert pieces >= 2
    assert len(running.gpu.transcript) == 20 + pieces + 1 + (2 if fault else 0)
    running.gpu.one_ciphertext_per_counter()
    assert (await running.get("/v1/links"))["proof_bytes_to_gpu"] == len(running.gpu.proof)


async def test_it_waits_for_the_port_until_the_lease_ends(running: Running) -> None:
    await running.approved_with_channel()
    running.gpu.unbound = 5
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert running.orchestrator.reports[0].timers.grab_gpu > 0
    running.gpu.unbound = 10**9
    await visit(running, epoch=2, round=2, visit="v_0000000000000002")
    await running.until(lambda: running.gpu.calls > 20)
    running.clock.now += 120
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "lease-expired"
    assert running.orchestrator.refusals[0]["epoch"] == 2
    assert (await running.get("/v1/visits/v_0000000000000002"))["phase"] == "REFUSED"


async def test_a_refusal_of_the_gpu_ends_the_visit(running: Running) -> None:
    await running.approved_with_channel()
    running.gpu.refuse_with = "copy-refused"
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "copy-refused"
    assert running.gpu.transcript == []


@pytest.mark.parametrize("said", ["Copy_Refused", "x" * 70, "copy-refused\x1b[2J"])
async def test_whoever_answers_in_the_gpus_place_does_not_keep_a_refusal_from_being_heard(
    running: Running, said: str
) -> None:
    """The orchestrator takes no such code. Saying it failed, nobody was told, and the GPU waited out its lease."""
    await running.approved_with_channel()
    running.gpu.refuse_with = said
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "protocol-violation"
    [row] = (await running.get("/v1/visits"))["items"]
    assert (row["phase"], row["refusal"]["code"]) == ("REFUSED", "protocol-violation")
    assert row["refusal"]["detail"].isprintable()


async def test_a_refusal_that_cannot_be_said_is_one_all_the_same(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.approved_with_channel()
    running.gpu.refuse_with = "copy-refused"
    monkeypatch.setattr(running.holder.visits._facts, "gave_up", AsyncMock(side_effect=KeyError("refusal_code")))
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert [refusal["code"] for refusal in running.orchestrator.refusals] == ["internal"]


async def test_duplicates_are_harmless(running: Running) -> None:
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    calls = running.gpu.calls
    running.orchestrator.items.append({**running.orchestrator.items[-1], "seq": len(running.orchestrator.items) + 1})
    running.orchestrator.ask_approval(running.orchestrator.manifest)  # type: ignore[arg-type]
    await running.until(lambda: len(running.orchestrator.approvals) == 2)
    assert running.orchestrator.approval_bytes[0] == running.orchestrator.approval_bytes[1]
    assert running.gpu.calls == calls
    assert len(running.orchestrator.reports) == 1
    assert running.orchestrator.refusals == []


async def test_a_lost_report_is_sent_again_byte_by_byte(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.lost_answers = 1
    await visit(running)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    assert len(running.orchestrator.report_bytes) == 2
    assert running.orchestrator.report_bytes[0] == running.orchestrator.report_bytes[1]


@pytest.mark.parametrize("replayed", [True, False])
async def test_restart_in_the_middle_of_a_visit(start: Start, replayed: bool) -> None:
    stuck = asyncio.Event()

    async def hold(index: int) -> None:
        if index == 2:
            stuck.set()
            await asyncio.Event().wait()

    async with start() as running:
        await running.approved_with_channel()
        running.gpu.hook = hold
        await visit(running)
        async with asyncio.timeout(60):
            await stuck.wait()
    orchestrator = running.orchestrator
    first = orchestrator.proven
    if not replayed:
        orchestrator.items.clear()  # it thinks the old channel still stands and says nothing
    async with start() as running:
        running.gpu.hook = None
        # What the inbox ever held may come again: the old offer is an old epoch, the channel is new in any case. The start opens one of
        # its own, and the wish for one that comes again opens another, which kills it: an offer under that one would be lost.
        last = f"c_{3 if replayed else 2}"
        await running.until(lambda: running.open_channel() == last)
        assert orchestrator.proven is not first
        assert running.attempt_phase(1) is None
        assert (await running.get("/v1/visits/v_0000000000000001"))["phase"] == "ABANDONED"
        await visit(running, epoch=2)
        await running.until(lambda: orchestrator.reports)
        running.gpu.one_ciphertext_per_counter()
        assert orchestrator.reports[0].epoch == 2
        assert len((await running.get("/v1/visits/v_0000000000000001"))["attempts"]) == 2


async def test_restart_between_provisioning_and_report(start: Start) -> None:
    async with start() as running:
        await running.approved_with_channel()

        async def take_down(index: int) -> None:
            running.orchestrator.down = True

        running.gpu.hook = take_down
        await visit(running)
        await running.until(lambda: running.attempt_phase(1) == "PROVISIONED")
        calls = running.gpu.calls
    running.gpu.hook = None
    running.orchestrator.down = False
    async with start() as again:
        await again.until(lambda: again.orchestrator.reports)
        assert again.orchestrator.reports[0].epoch == 1
        assert again.gpu.calls == calls  # nothing was written a second time
        assert len(again.gpu.transcript) == 6


async def test_veto_stops_a_running_visit(running: Running) -> None:
    stuck = asyncio.Event()

    async def hold(index: int) -> None:
        stuck.set()
        await asyncio.Event().wait()

    await running.approved_with_channel()
    running.gpu.hook = hold
    await visit(running)
    async with asyncio.timeout(60):
        await stuck.wait()
    manifest = running.orchestrator.manifest.digest().hex()  # type: ignore[union-attr]
    answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json={"manifest": manifest, "reason": "consent"})
    assert answer.json()["state"] == "vetoed"
    assert running.orchestrator.approvals[-1].decision == "veto"
    await running.until(lambda: running.attempt_phase(1) is None)
    running.gpu.hook = None
    before = running.gpu.calls
    running.orchestrator.post("channel_wanted")
    await visit(running, epoch=2)
    await asyncio.sleep(0.1)
    assert running.gpu.calls == before


async def test_a_newer_epoch_supersedes_a_running_attempt(running: Running) -> None:
    stuck = asyncio.Event()

    async def hold(index: int) -> None:
        if not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()

    await running.approved_with_channel()
    running.gpu.hook = hold
    await visit(running)
    async with asyncio.timeout(60):
        await stuck.wait()
    running.orchestrator.proven = None
    running.orchestrator.post("channel_wanted")  # a recalled visit has spent its key: a new channel comes first
    await running.until(lambda: running.orchestrator.proven)
    await visit(running, epoch=2)
    await running.until(lambda: running.orchestrator.reports)
    attempts = (await running.get("/v1/visits/v_0000000000000001"))["attempts"]
    assert attempts[0]["phase"] == "ABANDONED"
    running.gpu.one_ciphertext_per_counter()


async def test_a_changed_dataset_is_not_written(running: Running) -> None:
    from tests.data_holder.holder_world import write_dataset

    await running.approved_with_channel()
    write_dataset(running.holder.foundation.settings.datasets["ehr"], records=49)
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "dataset-changed"
    assert running.gpu.calls == 0


async def test_who_waits_for_a_visits_end_can_be_cancelled_too(start: Start) -> None:
    """A worker that took its own cancellation for the visit's would never end, and the service's stop would wait for it."""
    stuck = asyncio.Event()

    async def hold(index: int) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async with start() as running:
        await running.approved_with_channel()
        running.gpu.hook = hold
        await visit(running)
        async with asyncio.timeout(60):
            await stuck.wait()
        ending = asyncio.create_task(running.holder.visits.cancel(SESSION))
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
