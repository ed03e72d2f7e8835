"""What a device statement must say of its visit's end: memory reads back as zeros, the planned steps, nothing of what was rejected."""

from __future__ import annotations

from typing import Any

import pytest

from shared.canonical import blake3_256
from shared.canonical.zeros import zeros_digest
from shared.claims.receipt import Accumulated, DeviceStatement, Mixed
from shared.claims.visit_end import expected_of_end
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
        "scrub_digest": blake3_256(bytes(ROOM)).hex(),
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


TRAINED, MODEL, ADDED = "records trained on", "model after a rejected visit", "accumulator after a rejected visit"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scrub_digest": "33" * 32}, "scrub digest"),
        ({"scrubbed_bytes": ROOM - 1}, "scrubbed bytes"),
        ({"scrubbed_bytes": 1 << 62}, "scrubbed bytes"),
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


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 5])
def test_zeros_are_hashed_in_pieces_as_at_once(length: int) -> None:
    assert zeros_digest(length) == blake3_256(bytes(length))
