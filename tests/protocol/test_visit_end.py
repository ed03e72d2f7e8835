"""What a device statement must say of its visit's end: memory reads back as zeros, the planned steps, nothing of what was rejected."""

from __future__ import annotations

from typing import Any

import pytest

from shared.canonical import blake3_256
from shared.canonical.zeros import zeros_digest
from shared.claims.manifest import Validation
from shared.claims.privacy import Privacy
from shared.claims.receipt import Accumulated, DeviceStatement, Mixed, Receipt
from shared.claims.visit_end import expected_of_end, expected_of_verdict, rose_too_far
from tests.orchestrator.orchestrator_samples import manifest

RULES = manifest()
HOLDER = RULES.roster[0].holder
STEPS, BATCH, ROOM = RULES.steps_for(HOLDER), RULES.training.batch_size, RULES.buffer_bytes
MIXED = Mixed(round=1, seed=7, visits=3, records=3 * STEPS * BATCH, first=0)
KEPT = Accumulated(before="4" * 64, after="4" * 64, batches=STEPS)
REJECTED: dict[str, Any] = {"outcome": "rejected", "model_after": "1" * 64}


def differing(outcome: str = "closed", **changes: Any) -> set[str]:
    """Names of what is not as expected in a statement that is right but for these changes."""
    right: dict[str, Any] = {
        "model_before": "1" * 64, "model_after": "2" * 64, "steps": STEPS, "scrubbed_bytes": ROOM,
        "scrub_digest": blake3_256(bytes(ROOM)).hex(), "records": STEPS * BATCH,
    }  # fmt: skip
    said = DeviceStatement.model_construct(**(right | changes))
    return {name for name, (value, got) in expected_of_end(said, outcome, HOLDER, RULES).items() if value != got}


@pytest.mark.parametrize(
    "changes",
    [
        {}, REJECTED, REJECTED | {"steps": 0}, {"mixed": MIXED, "steps": 3 * STEPS}, REJECTED | {"mixed": MIXED, "steps": STEPS + 1},
        {"accumulated": KEPT.model_copy(update={"after": "5" * 64})}, REJECTED | {"accumulated": KEPT},
    ],
)  # fmt: skip
def test_what_is_right_passes(changes: dict[str, Any]) -> None:
    assert differing(**changes) == set()


OWN, TRAINED, MODEL, ADDED = (
    "records of its stop",
    "records trained on",
    "model after a rejected visit",
    "accumulator after a rejected visit",
)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scrub_digest": "33" * 32}, "scrub digest"),
        ({"scrubbed_bytes": ROOM - 1}, "scrubbed bytes"),
        ({"scrubbed_bytes": 1 << 62}, "scrubbed bytes"),
        ({"records": 0}, OWN),
        ({"records": STEPS * BATCH + 1}, OWN),
        (REJECTED | {"records": 10**9}, OWN),
        ({"mixed": MIXED, "steps": 3 * STEPS, "records": 3 * STEPS * BATCH}, OWN),
        ({"steps": STEPS - 1}, TRAINED),
        ({"steps": STEPS + 1}, TRAINED),
        ({"mixed": MIXED}, TRAINED),
        (REJECTED | {"steps": STEPS + 1}, TRAINED),
        (REJECTED | {"steps": -1}, TRAINED),
        (REJECTED | {"mixed": MIXED, "steps": 3 * STEPS + 1}, TRAINED),
        ({"outcome": "rejected"}, MODEL),
        (REJECTED | {"accumulated": KEPT.model_copy(update={"after": "5" * 64})}, ADDED),
    ],
)
def test_what_is_not_is_named(changes: dict[str, Any], named: str) -> None:
    assert differing(**changes) == {named}


LIMITED = RULES.model_copy(update={"validation": Validation(dataset="ab" * 32, records=8, max_loss_increase=0.25)})


@pytest.mark.parametrize(
    ("before", "after", "rose"),
    [(1.0, 1.25, False), (1.0, 1.2500001, True), (1.0, 0.5, False), (None, 9.0, False), (1.0, None, False), (1.0, float("nan"), True)],
)  # fmt: skip
def test_what_raised_the_held_out_loss_too_far_was_not_accepted(
    before: float | None, after: float | None, rose: bool
) -> None:
    assert rose_too_far(LIMITED, before, after) is rose
    assert not rose_too_far(RULES.model_copy(update={"validation": None}), before, after)
    for outcome in ("closed", "rejected"):
        receipt = Receipt.model_construct(
            outcome=outcome, validation_before=before, validation_after=after, losses_released=False
        )
        expected, got = expected_of_verdict(receipt, DeviceStatement.model_construct(), LIMITED)[
            "held-out loss of an accepted visit"
        ]
        assert (expected != got) is (rose and outcome == "closed")


@pytest.mark.parametrize(("floor", "records", "mixed", "told"), [
    (1, 1, None, True), (4, 100, None, True), (5, 100, None, False), (4, 3, None, False), (4, 3, Mixed.model_construct(), True),
])  # fmt: skip
def test_no_receipt_tells_losses_that_its_manifest_keeps(
    floor: int, records: int, mixed: Mixed | None, told: bool
) -> None:
    """Of a batch of 4."""
    training = RULES.training.model_copy(update={"batch_size": 4})
    rules = RULES.model_copy(update={"privacy_floor": floor, "training": training})
    said = DeviceStatement.model_construct(dataset_records=records, mixed=mixed)
    private = rules.model_copy(update={"privacy": Privacy(noise_multiplier=1.0, max_grad_norm=1.0, delta=1e-5)})
    for released in (False, True):
        receipt = Receipt.model_construct(outcome="closed", losses_released=released, validation_before=None)
        for agreed, holds in ((rules, told or not released), (private, not released)):
            expected, got = expected_of_verdict(receipt, said, agreed)["losses told under the privacy floor"]
            assert (expected == got) is holds


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 5])
def test_zeros_are_hashed_in_pieces_as_at_once(length: int) -> None:
    assert zeros_digest(length) == blake3_256(bytes(length))
