"""Everything that can be known at submission is refused at submission, by name, reason and remedy; nothing half-done stays behind."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from shared.canonical import json_bytes, json_value, sha256
from shared.claims.manifest import EvidencePolicy, RosterEntry, Validation
from shared.errors import GputError
from shared.wire.visit import Signed
from tests.world.world import World
from tests.world.world_material import EMULATED

TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("unknown-program", {"program": "ab" * 48}, "program"),
    ("unknown-weights", {"initial_weights": "cd" * 32}, "initial_weights"),
    ("unknown-validation-dataset", {"validation": Validation(dataset="ef" * 32, records=4)}, "validation.dataset"),
    ("buffer-too-small", {"buffer_bytes": 4096, "steps_per_visit": 30}, "buffer_bytes"),
    (
        "party-not-enrolled",
        {"roster": (RosterEntry(holder="stranger", key="12" * 32, evidence=EMULATED),)},
        "roster.0.holder",
    ),
    ("key-mismatch", {"roster": (RosterEntry(holder="city", key="12" * 32, evidence=EMULATED),)}, "roster.0.key"),
]


@pytest.fixture
async def enrolled(world: World) -> World:
    await world.enrol()
    return world


async def test_manifests_that_cannot_run_are_refused(enrolled: World) -> None:
    for code, changes, field in TABLE:
        with pytest.raises(GputError) as caught:
            await enrolled.owner.submit(enrolled.material.manifest(**changes))
        assert caught.value.code == code
        assert field in caught.value.detail
        assert caught.value.remedy
    assert await enrolled.owner.items("sessions") == []


async def test_validation_of_the_wrong_size_is_refused(enrolled: World) -> None:
    rule = Validation(dataset=sha256(enrolled.material.validation).hex(), records=15)
    with pytest.raises(GputError) as caught:
        await enrolled.owner.submit(enrolled.material.manifest(validation=rule))
    assert caught.value.code == "validation-size-mismatch"


RAW: list[tuple[str, dict[str, Any]]] = [
    ("unsupported-feature", {"travel_mode": "courier"}),
    ("unsupported-feature", {"collect": "holder"}),
    ("invalid-manifest", {"collect": "tour", "travel_mode": "paper"}),
    ("unsupported-feature", {"differential_privacy": {"epsilon": 1}}),
    ("invalid-manifest", {"rounds": 0}),
    ("invalid-manifest", {"quorum": 9}),
    ("invalid-manifest", {"buffer_bytes": "big"}),
]


async def test_what_has_no_feature_is_refused_and_never_ignored(enrolled: World) -> None:
    for code, changes in RAW:
        fields = json_value(enrolled.material.manifest().canonical())
        with pytest.raises(GputError) as caught:
            await _submit_raw(enrolled, json_bytes({**fields, **changes}))
        assert caught.value.code == code, changes


async def test_a_manifest_that_is_not_canonical_is_refused(enrolled: World) -> None:
    document = b" " + enrolled.material.manifest().canonical()
    with pytest.raises(GputError) as caught:
        await _submit_raw(enrolled, document)
    assert caught.value.code == "not-canonical"


async def test_a_manifest_signed_by_another_is_refused(enrolled: World) -> None:
    document = enrolled.material.manifest().canonical()
    with pytest.raises(GputError) as caught:
        await _submit_raw(enrolled, document, signer="city")
    assert caught.value.status in (401, 403, 422)


async def _submit_raw(world: World, document: bytes, signer: str = "owner") -> None:
    signature = world.key(signer).sign("gput/manifest", document)
    signed = Signed(document=b64encode(document).decode(), signature=b64encode(signature).decode())
    await world.owner._peer.post_json(
        "/v1/sessions", signed.model_dump(mode="json"), idempotency_key="raw-" + signature.hex()[:64]
    )


async def test_emulated_evidence_is_refused_by_an_orchestrator_that_does_not_allow_it(new_world: Any) -> None:
    """L10, at submission."""
    async with new_world(settings={"orchestrator": {"allow_emulated": False}}, holders=("city",)) as world:
        await world.enrol()
        with pytest.raises(GputError) as caught:
            await world.owner.submit(world.material.manifest(holders=("city",)))
        assert caught.value.code == "emulated-not-allowed"


async def test_the_same_submission_twice_is_one_session(enrolled: World) -> None:
    manifest = enrolled.material.manifest(holders=("city",), rounds=1)
    first = await enrolled.owner.submit(manifest, idempotency_key="one")
    second = await enrolled.owner.submit(manifest, idempotency_key="one")
    assert first["id"] == second["id"]
    assert len(await enrolled.owner.items("sessions")) == 1
    await enrolled.completed(first["id"])


async def test_data_too_small_for_the_approval_is_named(new_world: Any) -> None:
    import numpy as np

    from tests.world.world_material import rows

    async with new_world(approve="manual", holders=("city",)) as world:
        features, label = rows(1, 3)
        np.savez(world.folder / "holder-city" / "tiny.npz", features=features[:0], label=label[:0])
        operator = world.operator("city")
        await operator.post(
            "datasets", {"name": "tiny", "path": str(world.folder / "holder-city" / "tiny.npz")}, expect=201
        )
        session = await world.submit()
        shown = await operator.request(session)
        body = {"manifest": shown["manifest"], "dataset": "tiny"}
        problem = await operator.post(f"requests/{session}/approve", body, expect=422)
        assert problem["code"] == "data-empty"
        assert "tiny.npz" in problem["detail"]
        assert (await world.owner.session(session))["phase"] == "AWAITING_APPROVAL"


def test_policies_name_a_hardware_root_by_default() -> None:
    """L10: a manifest that says nothing does not accept emulation."""
    assert "EMULATED" not in RosterEntry(holder="a", key="12" * 32).evidence.roots
    with pytest.raises(ValueError, match="roots"):
        EvidencePolicy()  # type: ignore[call-arg]  # there is no default
