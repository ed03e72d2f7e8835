"""What a holder commits to when it approves: the very records it approved, hashed once, under a salt that nobody can read anywhere."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_holder.datasets import record_tree
from data_holder.ledger import VOCABULARY
from shared.errors import Unavailable
from shared.protocol.membership import RULE
from tests import dataset_tree
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, make_manifest, write_dataset
from tests.data_holder.test_holder_visits import visit

RECORD_BYTES = 64


def path_of(running: Running) -> Path:
    return running.holder.foundation.settings.datasets["ehr"]


def salt_of(running: Running) -> bytes:
    return running.holder.approvals._commitments._salt(SESSION, "ehr").reveal()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    hashed, real = [], record_tree.leaf_hashes

    def counting(salt: bytes, indexes: Any, records: memoryview) -> list[bytes]:
        hashed.append(len(indexes))
        return real(salt, indexes, records)

    monkeypatch.setattr(record_tree, "leaf_hashes", counting)
    return hashed


async def test_the_approval_states_the_root_of_the_records(running: Running) -> None:
    await running.approved_with_channel()
    [approval] = running.orchestrator.approvals
    records = dataset_tree.split(np.load(path_of(running))["x"].tobytes(), RECORD_BYTES)
    assert (approval.records, approval.record_bytes) == (50, RECORD_BYTES)
    assert approval.dataset_root == dataset_tree.root(salt_of(running), records).hex()
    assert (await running.get(f"/v1/requests/{SESSION}"))["dataset_root"] == approval.dataset_root


async def test_the_salt_rests_nowhere_and_leaves_for_nobody(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await running.approved_with_channel()
    salt, folder = salt_of(running), running.holder.foundation.settings.data_dir
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    said = "".join(capsys.readouterr()).encode() + b"".join(running.orchestrator.bodies)
    leaf = dataset_tree.levels(salt, [np.load(path_of(running))["x"][0].tobytes()])[0][0]
    assert leaf in kept  # the tree is what was searched
    for needle in (salt, salt.hex().encode()):
        assert needle not in kept
        assert needle not in said
    assert leaf not in said


async def test_other_data_of_the_same_size_is_not_written(running: Running) -> None:
    await running.approved_with_channel()
    honest = path_of(running).read_bytes()
    values = np.load(path_of(running))["x"]
    np.savez(path_of(running), x=values[::-1])
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    refusal = running.orchestrator.refusals[0]
    assert refusal["code"] == "dataset-changed"
    assert "not the one that this holder approved" in refusal["detail"]
    assert not [body for body in running.orchestrator.bodies if b"ehr" in body], (
        "how it is called here is nobody else's"
    )
    assert running.gpu.calls == 0
    path_of(running).write_bytes(honest)  # put back: another time, the same records
    await again(running, 2)
    await running.until(lambda: running.orchestrator.reports)
    assert bytes(running.gpu.plain) == values[:20].tobytes()


async def again(running: Running, epoch: int) -> None:
    """Another attempt: a refused offer has spent its one-time key."""
    before, channels = running.orchestrator.proven, running.holder.visits._channels
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: running.orchestrator.proven is not before and SESSION in channels._open)
    await visit(running, epoch=epoch)


async def test_a_restart_hashes_nothing_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = counted(monkeypatch)
    async with start() as running:
        await running.approved_with_channel()
        assert sum(hashed) == 50
        before = running.orchestrator.proven
        running.orchestrator.items.clear()
    async with start() as running:
        orchestrator, channels = running.orchestrator, running.holder.visits._channels
        await running.until(lambda: orchestrator.proven is not before and SESSION in channels._open)
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
    assert sum(hashed) == 50


async def test_the_end_of_the_session_removes_the_tree(running: Running) -> None:
    await running.approved_with_channel()
    trees = running.holder.foundation.settings.data_dir / "trees"
    assert [path.name.startswith(SESSION) for path in trees.glob("*.tree")] == [True]
    running.orchestrator.post("ended", phase="COMPLETED")
    await running.until(lambda: not list(trees.glob("*.tree")))


async def test_hashing_outlives_the_visit_that_asked_for_it(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.approved_with_channel()
    write_dataset(path_of(running))  # the same records in another file: to be hashed again
    go_on, started, hashed = threading.Event(), threading.Event(), counted(monkeypatch)
    counting = record_tree.leaf_hashes

    def slow(salt: bytes, indexes: Any, records: memoryview) -> list[bytes]:
        started.set()
        assert go_on.wait(10)
        return counting(salt, indexes, records)

    monkeypatch.setattr(record_tree, "leaf_hashes", slow)
    await visit(running)
    await running.until(started.is_set)
    await running.holder.visits.cancel(SESSION)  # the lease ended, the GPU was called back
    await again(running, 2)
    go_on.set()
    await running.until(lambda: running.orchestrator.reports)
    assert running.orchestrator.reports[0].epoch == 2
    assert sum(hashed) == 50


async def test_a_stop_ends_the_hashing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from data_holder.datasets import dataset as dataset_module

    monkeypatch.setattr(dataset_module, "MAX_BLOCK_ROWS", 1)
    async with start(approve="manual") as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        _, program = await running.holder.approvals.show(SESSION)
        asked: list[None] = []

        def stopping() -> bool:
            asked.append(None)
            return len(asked) > 8

        monkeypatch.setattr(running.holder.reads, "_stopping", stopping)
        with pytest.raises(Unavailable) as caught:
            await running.holder.approvals._commitments.open(SESSION, "ehr", program)
        assert len(asked) == 9  # of 50 blocks
        assert caught.value.code == "stopping"
        assert not list((running.holder.foundation.settings.data_dir / "trees").glob("*.[tp]*"))


async def test_a_damaged_tree_is_made_again_and_is_no_change_of_the_data(running: Running) -> None:
    await running.approved_with_channel()
    (tree,) = (running.holder.foundation.settings.data_dir / "trees").glob("*.tree")
    damage(tree)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports or running.orchestrator.refusals)
    assert not running.orchestrator.refusals
    assert bytes(running.gpu.plain) == np.load(path_of(running))["x"][:20].tobytes()


async def test_a_damaged_tree_is_not_approved(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(approve="manual") as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        _, program = await running.holder.approvals.show(SESSION)
        (await running.holder.approvals._commitments.open(SESSION, "ehr", program)).close()
        (tree,) = (running.holder.foundation.settings.data_dir / "trees").glob("*.tree")
        damage(tree)
        shown = await running.get(f"/v1/requests/{SESSION}")
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).status_code == 200
        records = dataset_tree.split(np.load(path_of(running))["x"].tobytes(), RECORD_BYTES)
        [approval] = running.orchestrator.approvals
        assert approval.dataset_root == dataset_tree.root(salt_of(running), records).hex()


def damage(tree: Path) -> None:
    """One bit of the root, as a disk that fails leaves it."""
    kept = bytearray(tree.read_bytes())
    kept[-1] ^= 1
    tree.write_bytes(kept)


async def test_data_that_did_change_are_hashed_once_however_often_they_are_asked_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.approved_with_channel()
    hashed = counted(monkeypatch)
    write_dataset(path_of(running), records=51)
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    await again(running, 2)
    await running.until(lambda: len(running.orchestrator.refusals) == 2)
    assert {refusal["code"] for refusal in running.orchestrator.refusals} == {"dataset-changed"}
    assert sum(hashed) == 51


async def test_nothing_is_committed_to_before_the_enclave_gave_the_key(start: Start) -> None:
    async with start(unlock=False) as running:
        running.holder.approvals._commitments._key = None
        with pytest.raises(Unavailable) as caught:
            running.holder.approvals._commitments._salt(SESSION, "ehr")
        assert caught.value.code == "journal-locked"


async def test_what_an_earlier_release_approved_is_refused_by_name(running: Running) -> None:
    """Its root is made in another way, so that nothing can be said of the files: "changed" would send people to look for a change."""
    await running.approved_with_channel()
    state = running.holder.ledger.state(SESSION)
    assert state.record_rule == RULE
    written = VOCABULARY.read(
        "decision/2", {"document": "", "signature": "", "dataset_root": state.dataset_root, "records": 50}
    )
    assert written[1]["record_rule"] == 1  # what was written down before there was another
    state.record_rule = 1
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "approved-by-older-rule"
    assert running.gpu.calls == 0
    body = {"manifest": (await running.get(f"/v1/requests/{SESSION}"))["manifest"], "anew": True}
    anew = await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)
    assert (anew.status_code, anew.json()["code"]) == (409, "approved-by-older-rule")
    assert "successor" in anew.json()["remedy"]
