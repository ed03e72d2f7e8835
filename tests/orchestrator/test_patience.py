"""After which broken lives a session tries another, and how long it waits for it."""

from __future__ import annotations

import pytest

from orchestrator.in_clear import NOT_OURS
from orchestrator.runner.patience import MAX_CONFLICTS, PATIENCE_S, Patience
from orchestrator.runner.wishes import Wishes
from shared.errors import BadRequest, Conflict, GputError, Refused, Unavailable
from shared.service.changes import Changes
from shared.wire.gpu_answers import COMPUTE_OUTAGES

AWAY, NO = Unavailable("away"), Conflict("no", code="no-port")


def test_an_outage_of_any_length_leaves_all_tries_to_refusals() -> None:
    patience = Patience()
    waits = [patience.left(AWAY, 0) for _ in range(3 * MAX_CONFLICTS)]
    assert waits[: len(PATIENCE_S)] == list(PATIENCE_S)
    assert set(waits[len(PATIENCE_S) :]) == {PATIENCE_S[-1]}
    assert [patience.left(NO, 0) for _ in range(MAX_CONFLICTS)] == [PATIENCE_S[-1]] * MAX_CONFLICTS
    assert patience.left(AWAY, 0) is not None
    assert patience.left(NO, 0) is None


def test_a_closed_visit_makes_up_for_what_was_before() -> None:
    patience = Patience()
    for _ in range(MAX_CONFLICTS):
        patience.left(NO, 4)
    assert patience.left(NO, 5) == PATIENCE_S[0]
    assert [patience.left(NO, 5) for _ in range(MAX_CONFLICTS)][-1] is None


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (AWAY, True), (NO, True), (Refused("old", code=NOT_OURS[0]), True), (GputError("dead", code=next(iter(COMPUTE_OUTAGES))), True),
        (BadRequest("what"), False), (GputError("oh"), False),
    ],
)  # fmt: skip
def test_what_another_life_may_do_better(error: GputError, again: bool) -> None:
    assert (Patience().left(error, 0) is not None) is again


def test_a_stop_takes_no_owners_name_from_what_it_asked_for() -> None:
    wishes = Wishes(Changes())
    wishes.wish("cancel", "alice")
    wishes.wish("stop", "")
    assert (wishes.cancel, wishes.stop, wishes.by) == (True, True, "alice")
