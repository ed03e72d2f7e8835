"""A whole session in one process: its result, its receipts, its log, its bytes, and the laws that a recording can prove."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import safetensors.numpy

from gput.receipts import BUNDLE, verify
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import GputError
from shared.protocol.merkle import verify_consistency
from tests.world.world_material import BATCH, HOLDERS, RECORD_BYTES, ROUNDS, STEPS, Material, disguises, leaks, windows
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
    text = (source / BUNDLE).read_text()
    leaf = text.index('"leaf": "') + 60
    changed = "A" if text[leaf] != "A" else "B"
    (tmp_path / BUNDLE).write_text(text[:leaf] + changed + text[leaf + 1 :])
    with pytest.raises(GputError):
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


def test_no_record_is_visible_to_the_host(recorded: Recording, material: Material) -> None:
    """L6 and L9: bodies of every link, databases, files and logs hold no window of a planted record, in no common disguise."""
    places = [*recorded.wire.bodies(), *recorded.files, recorded.logs]
    for holder, canary in material.canaries.items():
        assert leaks(places, disguises(canary)) == [], holder


def test_no_model_byte_crosses_between_two_vms(recorded: Recording) -> None:
    """L9: the trained model is nowhere on the holders' links; the agent's links carry it only sealed."""
    tensors = safetensors.numpy.load(recorded.model)
    secret = tensors["layers.0.weight"].tobytes()[:256]
    assert leaks(recorded.wire.bodies("holder"), disguises(secret)) == []
    assert leaks(recorded.wire.bodies("agent"), windows(secret)) == []
    exported = [e.answer for e in recorded.wire.calls("owner", "orchestrator", "/model")]
    assert leaks(exported, windows(secret)), "the search itself must find what is there"


def test_nothing_of_a_record_is_left_in_gpu_memory_after_each_visit(recorded: Recording, material: Material) -> None:
    """L7, the GPU's memory; processes' memory is searched with real processes."""
    assert len(recorded.hbm) == VISITS
    for memory in recorded.hbm:
        for canary in material.canaries.values():
            assert leaks(memory, windows(canary)) == []


def test_only_the_model_differs_in_gpu_memory_from_visit_to_visit(recorded: Recording) -> None:
    """L7: between two closed visits nothing changes but model, its committed copy, and optimiser state (both copies)."""
    for before, after in zip(recorded.hbm, recorded.hbm[1:], strict=False):
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert 1 <= len(changed) <= 4


def test_order_on_return_is_fence_drain_upload_measure_train(recorded: Recording) -> None:
    """L3, in the commands that the GPU was really given."""
    names = recorded.recorder.names()
    at = names.index("InstallGrant")
    epilogues = 0
    while "InstallGrant" in names[at:]:
        at = names.index("InstallGrant", at)
        following = names[at + 1 : at + 7]
        assert following[:4] == ["OpenEpoch", "Drain", "UploadProgram", "Measure"]
        assert following[4] == "Train"
        closing = names[at:].index("CloseVisit")
        assert names[at:][closing - 1 : closing + 1] == ["Scrub", "CloseVisit"]
        epilogues += 1
        at += 1
    assert epilogues == VISITS


def test_a_fence_kills_the_visits_epoch_before_anything_is_looked_at(recorded: Recording) -> None:
    """L1, L5: the epoch a holder was given is in the kill list of the very next epoch, and is granted only once."""
    commands = recorded.recorder.commands()
    granted = [c.grant.epoch for c in commands if type(c).__name__ == "InstallGrant"]
    killed = [tuple(c.kills) for c in commands if type(c).__name__ == "OpenEpoch" and c.kills]
    assert killed == [(epoch,) for epoch in granted]
    assert len(set(granted)) == VISITS


def test_every_grant_follows_a_scrub_of_its_region(recorded: Recording) -> None:
    """L2: between two grants of a region lies its scrub."""
    dirty: set[int] = set()
    for command in recorded.recorder.commands():
        if type(command).__name__ == "InstallGrant":
            assert command.grant.region not in dirty
            dirty.add(command.grant.region)
        if type(command).__name__ == "Scrub":
            dirty.discard(command.region)
    assert not dirty


def test_no_key_and_iv_seal_twice(recorded: Recording) -> None:
    """L4 over the whole transcript of all parties."""
    assert len(recorded.recorder.sealed) > 100
    assert recorded.recorder.reused == []


def test_no_key_is_at_rest_or_on_the_wire(recorded: Recording) -> None:
    """No AEAD key that anybody used lies in a file, a log or a body."""
    places = [*recorded.wire.bodies(), *recorded.files, recorded.logs]
    keys = list(recorded.recorder.keys.values())
    assert leaks(places, [*keys, *(key.hex().encode() for key in keys)]) == []
