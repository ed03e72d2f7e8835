"""A whole session in one process: its result, its receipts, its log, its bytes. (The laws over it: tests/laws.)"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import safetensors.numpy

from gput.receipt_folder import LEAVES
from gput.receipts import verify
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import GputError
from shared.protocol.merkle import verify_consistency
from tests.world.world_material import BATCH, HOLDERS, RECORD_BYTES, ROUNDS, STEPS, Material
from tests.world.world_recording import Recording

VISITS = len(HOLDERS) * ROUNDS
VISIT_BYTES = STEPS * BATCH * RECORD_BYTES


def test_every_visit_closes_in_the_manifests_order(recorded: Recording) -> None:
    assert recorded.view["phase"] == "COMPLETED"
    assert [(v["round"], v["index"], v["holder"]) for v in recorded.visits] == [
        (1 + i // 3, 1 + i, HOLDERS[i % 3]) for i in range(VISITS)
    ]
    assert {v["outcome"] for v in recorded.visits} == {"closed"}
    assert {v["attempt"] for v in recorded.visits} == {1}
    assert recorded.view["step"] == recorded.view["steps_total"] == VISITS * STEPS
    assert recorded.view["backend"] == "EMULATED"


def test_cursors_and_epochs_advance(recorded: Recording) -> None:
    epochs = [e for v in recorded.visits for e in (v["epoch"], v["fence_epoch"])]
    assert epochs == sorted(set(epochs))
    for holder in HOLDERS:
        mine = [v["cursor"] for v in recorded.visits if v["holder"] == holder]
        assert [c["start"] for c in mine] == [0, STEPS * BATCH]
        assert all(c["count"] == STEPS * BATCH for c in mine)


def test_training_learned_something(recorded: Recording) -> None:
    loss = recorded.view["validation_loss"]
    assert loss["last"] < loss["first"]
    assert len(recorded.losses["owner"]) == VISITS * STEPS


def test_model_is_exported_and_is_the_committed_one(recorded: Recording, material: Material) -> None:
    tensors = safetensors.numpy.load(recorded.model)
    assert set(tensors) == set(safetensors.numpy.load(material.weights))
    assert len(recorded.model) == recorded.view["model"]["size_bytes"]
    assert tensors["head.weight"].any()


def test_receipts_verify_offline_and_name_the_backend(recorded: Recording) -> None:
    found = recorded.receipts
    assert (found.receipts, found.backends) == (VISITS, ("EMULATED",))
    assert found.holders == dict.fromkeys(HOLDERS, ROUNDS)
    assert found.records == VISITS * STEPS * BATCH


def test_a_changed_bundle_does_not_verify(recorded: Recording, tmp_path: Path) -> None:
    source = recorded.folder / "receipts"
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    text = (source / LEAVES).read_text()
    leaf = text.index('"leaf":"') + 60
    changed = "A" if text[leaf] != "A" else "B"
    (tmp_path / LEAVES).write_text(text[:leaf] + changed + text[leaf + 1 :])
    with pytest.raises(GputError, match=r"leaves.jsonl: leaf 0: "):
        verify(tmp_path)


def test_every_holder_has_verified_its_own_receipts(recorded: Recording) -> None:
    for holder, items in recorded.holder_receipts.items():
        assert [item["outcome"] for item in items] == ["closed"] * ROUNDS, holder
        for item in items:
            assert item["verified"], item["checks"]
            assert item["backend"] == "EMULATED"


def test_the_log_only_grows(recorded: Recording) -> None:
    for head in recorded.heads:
        tree = TreeHead(recorded.session, head["size"], bytes.fromhex(head["root"]), head["time"])
        import base64

        verify_tree_head(tree, bytes.fromhex(head["key"]), base64.b64decode(head["signature"]))
    for old, new, path in zip(recorded.heads, recorded.heads[1:], recorded.consistency, strict=False):
        verify_consistency(
            old["size"], bytes.fromhex(old["root"]), new["size"], bytes.fromhex(new["root"]),
            [bytes.fromhex(node) for node in path],
        )  # fmt: skip


def test_dataset_bytes_go_to_the_gpu_and_nowhere_else(recorded: Recording) -> None:
    assert recorded.view["bytes"]["holder_to_gpu_records"] == VISITS * VISIT_BYTES
    for holder, link in recorded.links.items():
        assert link["dataset_bytes_to_gpu"] == ROUNDS * VISIT_BYTES, holder
        assert link["dataset_bytes_to_orchestrator"] == 0
    for holder in HOLDERS:
        sent = recorded.wire.calls(f"holder-{holder}", "agent", "/copy")
        assert sum(len(e.call.body) for e in sent if e.status == 200) >= ROUNDS * VISIT_BYTES
