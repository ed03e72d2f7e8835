"""Wrong manifests, each a right one with one thing changed: field, code and remedy of the refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.workload.builder import build
from orchestrator.library import Library
from orchestrator.sessions.submission import Known, ManifestRefused, check_manifest, read_manifest
from shared.canonical import json_bytes
from shared.claims.archive import open_archive
from shared.claims.manifest import RosterEntry, Validation
from shared.claims.privacy import Privacy
from shared.claims.training import SGD, TrainingOptions
from shared.names import TravelMode
from tests.orchestrator.orchestrator_samples import EMULATED, RECORD_BYTES, Room, key, manifest, program


def known(**changes: Any) -> Known:
    fields: dict[str, Any] = {
        "programs": {"a" * 96: program()}, "weights": {}, "validation": {"b" * 64: 10 * RECORD_BYTES},
        "parties": {f"h{i}": key(i + 1).fingerprint for i in range(3)}, "gpus": ("gpu-0",), "allow_emulated": True,
    }  # fmt: skip
    return Known(**{**fields, **changes})


def test_a_sound_manifest_passes() -> None:
    check_manifest(manifest(validation=Validation(dataset="b" * 64, records=10)), "gpu-0", known())


PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5, max_epsilon=4.0)
REFUSED = {
    "privacy for a program that mixes samples": (
        {"privacy": PRIVACY.model_copy(update={"max_epsilon": None})},
        {"mixed": "aten.batch_norm.default takes its statistics from the batch"}, "privacy", "samples-not-independent",
    ),
    "more epsilon than allowed": ({"privacy": PRIVACY}, {}, "privacy.max_epsilon", "privacy-budget"),
    "a name that turns its line round": ({"name": "study \u202egnp.exe"}, {}, "name", "unseen-text"),
    "a name that steers a terminal": ({"name": "study \x9b2J"}, {}, "name", "unseen-text"),
    "unknown program": ({"program": "c" * 96}, {}, "program", "unknown-program"),
    "buffer too small": ({"steps_per_visit": 200}, {}, "buffer_bytes", "buffer-too-small"),
    "unknown weights": ({"initial_weights": "d" * 64}, {}, "initial_weights", "unknown-weights"),
    "unknown validation data": (
        {"validation": Validation(dataset="c" * 64, records=10)}, {}, "validation.dataset", "unknown-validation-dataset",
    ),
    "validation size": (
        {"validation": Validation(dataset="b" * 64, records=9)}, {}, "validation.records", "validation-size-mismatch",
    ),
    "stranger": ({}, {"parties": {}}, "roster.0.holder", "party-not-enrolled"),
    "other key": ({}, {"parties": {f"h{i}": "e" * 64 for i in range(3)}}, "roster.0.key", "key-mismatch"),
    "no such gpu": ({}, {"gpus": ("gpu-9",)}, "gpu", "unknown-gpu"),
    "emulated refused": ({}, {"allow_emulated": False}, "gpu_evidence.roots", "emulated-not-allowed"),
    "own steps too many": (
        {"roster": (RosterEntry(holder="h0", key=key(1).fingerprint, steps_per_visit=999, evidence=EMULATED),)},
        {}, "roster.0.steps_per_visit", "buffer-too-small",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_known_to_be_wrong_is_refused_with_field_reason_and_remedy(name: str) -> None:
    manifest_changes, known_changes, field, code = REFUSED[name]
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(**manifest_changes), "gpu-0", known(**known_changes))
    assert (refusal.value.errors[0]["field"], refusal.value.code) == (field, code)
    assert all(error["remedy"] and error["reason"] for error in refusal.value.errors)


def test_a_program_that_mixes_samples_is_no_matter_without_privacy() -> None:
    check_manifest(manifest(), "gpu-0", known(mixed="it does"))


def test_gradients_add_up_where_no_batch_changes_state() -> None:
    check_manifest(manifest(accumulate="tour"), "gpu-0", known())
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(accumulate="tour"), "gpu-0", known(changing="norm.running_mean"))
    (finding,) = refusal.value.errors
    assert (finding["field"], "'norm.running_mean'" in finding["reason"]) == ("accumulate", True)


def test_nesterovs_step_needs_a_momentum() -> None:
    """PyTorch refuses it, too. Manifests that were accepted with it are read as ever."""
    for momentum in (0.0, 0.9):
        asked = manifest(training=TrainingOptions(optimizer=SGD(momentum=momentum, nesterov=True), batch_size=2))
        if momentum:
            check_manifest(asked, "gpu-0", known())
            continue
        with pytest.raises(ManifestRefused) as refusal:
            check_manifest(asked, "gpu-0", known())
        assert refusal.value.errors[0]["field"] == "training.optimizer.nesterov"
        assert read_manifest(asked.canonical()) == asked


async def test_whether_samples_are_independent_is_read_from_the_stored_program(tmp_path: Path) -> None:
    room = Room(tmp_path)
    await room.catalogue()
    library = Library(room.store, tmp_path, lambda: 1.0)
    try:
        for batch_norm in (True, False):
            archive, _ = build("classifier", features=4, classes=2, hidden=(4,), batch_norm=batch_norm)
            digest = open_archive(archive).digest.hex()
            await library.add_program(digest, archive)
            asked = manifest(program=digest, privacy=PRIVACY)
            found = await library.known_for(asked, ("gpu-0",), True)
            assert (bool(found.mixed), bool(found.changing)) == (batch_norm, batch_norm)
    finally:
        await room.store.close()


def test_a_direct_session_needs_room_for_a_second_buffer() -> None:
    """What is loaded ahead lies in a buffer of its own."""
    wanted: dict[str, Any] = {"buffer_bytes": 1 << 20}
    room = known(gpu_memory=(1 << 20) + (1 << 19), archive_bytes=4096)
    check_manifest(manifest(**wanted), "gpu-0", room)
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(**wanted, travel_mode=TravelMode.DIRECT), "gpu-0", room)
    assert refusal.value.code == "gpu-out-of-memory"


def test_a_session_of_collected_tours_needs_room_for_every_holders_records() -> None:
    room = known(gpu_memory=(3 << 20) + (1 << 19), archive_bytes=4096)
    check_manifest(manifest(3, buffer_bytes=1 << 20, collect="tour"), "gpu-0", room)
    four = known(gpu_memory=room.gpu_memory, parties={f"h{i}": key(i + 1).fingerprint for i in range(4)})
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(4, buffer_bytes=1 << 20, collect="tour"), "gpu-0", four)
    assert (refusal.value.code, refusal.value.errors[0]["field"]) == ("gpu-out-of-memory", "buffer_bytes")


def test_all_findings_come_at_once() -> None:
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(steps_per_visit=200), "gpu-1", known(parties={}))
    assert len(refusal.value.errors) == 3 + 3 + 1  # three visits too large, three strangers, one GPU


def test_weights_that_do_not_fit_the_program_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}}).encode()
    path = tmp_path / "weights"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    with pytest.raises(ManifestRefused) as refusal:
        check_manifest(manifest(initial_weights="d" * 64), "gpu-0", known(weights={"d" * 64: lambda: path}))
    assert refusal.value.code == "weights-mismatch"


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"travel_mode": "courier"}, "travel_mode", "unsupported-feature"),
        ({"collect": "session"}, "collect", "unsupported-feature"),
        ({"collect": "tour", "travel_mode": "paper"}, "manifest", "invalid-manifest"),
        ({"collect": "tour", "accumulate": "tour"}, "manifest", "invalid-manifest"),
        ({"collect": "tour", "privacy": PRIVACY.model_dump(mode="json")}, "manifest", "invalid-manifest"),
        ({"accumulate": "session"}, "accumulate", "unsupported-feature"),
        ({"accumulate": "tour", "travel_mode": "paper"}, "manifest", "invalid-manifest"),
        ({"differential_privacy": True}, "differential_privacy", "unsupported-feature"),
        ({"rounds": 0}, "rounds", "invalid-manifest"),
    ],
)
def test_a_field_whose_feature_does_not_exist_is_refused(change: dict[str, Any], field: str, code: str) -> None:
    document = json_bytes({**manifest().model_dump(mode="json"), **change})
    with pytest.raises(ManifestRefused) as refusal:
        read_manifest(document)
    assert (refusal.value.errors[0]["field"], refusal.value.code) == (field, code)


def test_only_the_canonical_form_is_taken() -> None:
    document = json.dumps(manifest().model_dump(mode="json"), indent=1).encode()
    with pytest.raises(ManifestRefused) as refusal:
        read_manifest(document)
    assert refusal.value.code == "not-canonical"
    assert read_manifest(manifest().canonical()) == manifest()
