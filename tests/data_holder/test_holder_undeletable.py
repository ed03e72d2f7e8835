"""A file that cannot be removed: it keeps nothing else from being removed, no end from being heard, and no refusal from being said."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_holder import runner
from data_holder.datasets import record_tree
from shared.errors import Unavailable
from shared.protocol.membership import NOT_APPROVED
from shared.service import steady_clock
from shared.service.data_dir import DISK_UNUSABLE
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import SESSION, make_manifest
from tests.data_holder.test_holder_receipts import stored, visited
from tests.data_holder.test_holder_visits import visit

LATER = "s_00000000000later"
DAY_S = 86_400.0


def undeletable(running: Running, session: str = SESSION) -> Path:
    """A folder in the place of a tree of the session: nobody may unlink that, whatever his rights."""
    place = running.holder.approvals._commitments._folder / f"{session}-0000000000000000.{record_tree.KIND}"
    place.mkdir()
    return place


async def test_it_keeps_no_other_session_and_nothing_that_was_converted(start: Start) -> None:
    """What came behind it was kept for good, and so were the records of datasets that their operator had forgotten."""
    async with start(keep_finished_s=DAY_S) as running:
        ledger = running.holder.ledger
        await running.approved_with_channel()
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), name="study-2"))
        running.orchestrator.items[-1]["session"] = LATER
        await running.until(lambda: len({said.session for said in running.orchestrator.approvals}) == 2)
        bad, trees = undeletable(running), running.holder.approvals._commitments._folder
        for session in (SESSION, LATER):
            running.orchestrator.post("ended", phase="CANCELLED", session=session)
        await running.until(lambda: all(ledger.state(session).ended for session in (SESSION, LATER)))
        left = trees / f"{LATER}-0000000000000000.{record_tree.KIND}"
        left.write_bytes(b"tree")
        converted = running.holder.catalogue._cache_dir / f"{'0' * 24}-2-{'0' * 16}-{'0' * 16}.records"
        converted.parent.mkdir(exist_ok=True)
        converted.write_bytes(b"records")
        running.clock.now += 2 * DAY_S
        with pytest.raises(Unavailable) as said:
            await running.holder.runner.retention.sweep()
        assert said.value.code == DISK_UNUSABLE
        assert (left.exists(), converted.exists()) == (False, False)
        bad.rmdir()
        await running.holder.runner.retention.sweep()
        assert not [path for path in trees.iterdir() if SESSION in path.name]


async def test_an_end_is_heard_and_told(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    document, report = await visited(running)
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    await stored(running)
    told = answering(running, monkeypatch, "/end", lambda number: None)
    undeletable(running)
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: told)
    await running.until(lambda: SESSION not in running.holder.runner._workers)
    assert (await running.get(f"/v1/requests/{SESSION}"))["state"] == "ended"
    assert not running.holder.runner._again.of(SESSION)


async def test_a_proof_that_the_gpu_refuses_is_told_to_the_orchestrator(running: Running) -> None:
    """Else the GPU waits out its lease."""
    await running.approved_with_channel()
    undeletable(running)
    running.gpu.refuse_with = NOT_APPROVED
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == NOT_APPROVED


async def test_a_visit_whose_tree_is_made_again_beside_it_is_served(running: Running) -> None:
    """The new tree was given no name before the old one was gone."""
    await running.approved_with_channel()
    [tree] = running.holder.approvals._commitments._folder.glob(f"{SESSION}-*")
    tree.unlink()
    bad = undeletable(running)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert sorted(bad.parent.iterdir()) == sorted([bad, tree])


async def test_a_clock_that_is_ahead_for_a_moment_removes_no_receipts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady_clock, "SETTLE_S", DAY_S)
    async with start(keep_finished_s=DAY_S) as running:
        await running.approved_with_channel()
        running.orchestrator.post("ended", phase="CANCELLED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        running.clock.now += 2 * DAY_S
        await running.holder.runner.retention.sweep()
        assert running.holder.ledger.find(SESSION) is not None
        monkeypatch.setattr(steady_clock, "SETTLE_S", 0.0)
        await running.holder.runner.retention.sweep()
        assert running.holder.ledger.find(SESSION) is None
