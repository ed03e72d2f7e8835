"""A statement under the device's own key is held against what the orchestrator knows better before a receipt is made of it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.sessions.remembered import ModelState
from orchestrator.visits.receipts import check_statement, check_tour_statement
from orchestrator.visits.run import Run
from shared.canonical import cbor_bytes, sha256
from shared.canonical.zeros import zeros_digest
from shared.claims.receipt import DeviceStatement, TourStatement
from shared.crypto.cose import load_verifier, sign1
from shared.errors import VerificationFailed
from tests.orchestrator.orchestrator_samples import SESSION, key, manifest

RULES = manifest()
DEVICE = key(99)
BEFORE, AFTER = ModelState("1" * 64, "5" * 64, 0), ModelState("2" * 64, "6" * 64, 2)
SAID: dict[str, Any] = {
    "device": "ab" * 8, "backend": "EMULATED", "boot_counter": 1, "life": 1, "session": SESSION, "visit": "v_" + "0" * 16, "epoch": 4,
    "holder": "h0", "records": 8, "length": 64, "commitment": "c" * 64, "dataset_root": "d0" * 32, "dataset_records": 40,
    "program": RULES.program, "model_before": BEFORE.model, "model_after": AFTER.model, "first_step": 0, "steps": 2,
    "scrubbed_bytes": RULES.buffer_bytes, "scrub_digest": zeros_digest(RULES.buffer_bytes).hex(),
}  # fmt: skip


def check(outcome: str, after: ModelState, **changes: Any) -> DeviceStatement:
    """Hold the statement of the open visit, with these changes, against it."""
    state = SimpleNamespace(device=SAID["device"], backend="EMULATED", id=SESSION, manifest=RULES)
    visit = SimpleNamespace(
        id=SAID["visit"], epoch=4, holder="h0", first_step=0, records=8, details={"commitment": SAID["commitment"]}
    )
    run = SimpleNamespace(
        life=SimpleNamespace(statement_key=load_verifier(DEVICE.public), boot_counter=1), visit=visit, state=state,
        committed=BEFORE, dataset_of=lambda holder: SimpleNamespace(root=SAID["dataset_root"], records=40),
    )  # fmt: skip
    payload = cbor_bytes(DeviceStatement(**(SAID | changes)).model_dump(mode="python"))
    return check_statement(cast("Run", run), sign1(payload, DEVICE, kid=sha256(DEVICE.public)), after, outcome=outcome)


def test_the_visits_own_statement_passes() -> None:
    assert check("closed", AFTER).steps == 2
    rejected = check("rejected", BEFORE, model_after=BEFORE.model, steps=1)
    assert rejected.model_after == BEFORE.model


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scrub_digest": "33" * 32}, "scrub digest"),
        ({"scrubbed_bytes": 64}, "scrubbed bytes"),
        ({"steps": 1000}, "records trained on"),
        ({"travel_mode": "paper"}, "travel_mode"),
    ],
)
def test_a_false_one_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(VerificationFailed, match=f"statement's {named} is not this visit's") as refused:
        check("closed", AFTER, **changes)
    assert refused.value.code == "statement-mismatch"


def test_what_was_rejected_changed_no_model() -> None:
    learnt = dataclasses.replace(BEFORE, model=AFTER.model)
    with pytest.raises(VerificationFailed, match="model after a rejected visit"):
        check("rejected", learnt)


def check_end(**changes: Any) -> None:
    """Hold the statement of a tour's end against what the GPU answered of it."""
    claims = TourStatement.model_validate({
        "device": SAID["device"], "backend": "EMULATED", "boot_counter": 1, "life": 1, "session": SESSION, "program": RULES.program,
        "round": 1, "batches": 4, "stepped": True, "model_before": BEFORE.model, "model_after": AFTER.model,
        "optimiser_before": BEFORE.optimiser, "optimiser_after": AFTER.optimiser,
    } | changes)  # fmt: skip
    run = SimpleNamespace(life=SimpleNamespace(statement_key=load_verifier(DEVICE.public)))
    signed = sign1(cbor_bytes(claims.model_dump(mode="python")), DEVICE, kid=sha256(DEVICE.public))
    check_tour_statement(cast("Run", run), signed, claims)


def test_what_was_dropped_changed_no_model_and_an_end_had_gradients() -> None:
    check_end()
    check_end(stepped=False, model_after=BEFORE.model)
    for changes, named in (
        ({"stepped": False}, "model after a dropped tour"),
        ({"batches": 0}, "batches of a tour"),
    ):
        with pytest.raises(VerificationFailed, match=f"statement's {named}") as refused:
            check_end(**changes)
        assert refused.value.code == "statement-mismatch"
