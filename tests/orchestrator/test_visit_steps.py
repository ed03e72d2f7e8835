"""What a visit's steps took, in the order taken: also where it was read from the journal, whose canonical JSON has names sorted."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.sessions.visit_state import VisitState
from orchestrator.visit_steps import STEPS
from shared.canonical import json_bytes

PLANNED: dict[str, Any] = {
    "visit": "v_a", "round": 1, "index": 1, "attempt": 1, "holder": "city", "cursor": {}, "records": 8, "first_step": 0, "steps": 2,
    "epoch": 1, "fence_epoch": 2, "region": 3,
}  # fmt: skip


def test_a_visit_that_was_read_from_the_journal_has_its_steps_in_order() -> None:
    visit = VisitState.planned(PLANNED, 1, 10.0)
    assert visit.view("s_a")["durations"] == {}
    read = json.loads(json_bytes({"durations": {step: float(at) for at, step in enumerate(STEPS)}}))
    assert list(read["durations"]) != list(STEPS)
    visit.details.update(read)
    assert list(visit.view("s_a")["durations"].items()) == [(step, float(at)) for at, step in enumerate(STEPS)]
