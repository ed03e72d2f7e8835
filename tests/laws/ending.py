"""How a session may end (design 4.3, 10): with the undisturbed run's very model, or with a clear stop. Knows acts; no law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.sessions.succession import ROLLED_BACK
from tests.laws.acts import Act
from tests.laws.case import Case, Checks


def ends_as_it_should(case: Case, acts: Sequence[Act], undisturbed: dict[str, Any]) -> Checks:
    """Every visit closed: the same model to the bit, whatever happened on the way. Else no model, and a reason that is no bug. Acts
    that a session must survive by itself leave it no choice."""
    check, view = Checks(), case.view
    closed = {visit["index"] for visit in case.visits if visit["outcome"] == "closed"}
    if _code(view) not in ROLLED_BACK:
        check(all(visit["outcome"] for visit in case.visits), "a visit of the ended session has no outcome")
    if view["phase"] == "COMPLETED":
        same = view["model"]["digest"] == undisturbed["model"]["digest"]
        check(
            same or len(closed) < undisturbed["visits_closed"], "every visit was closed, and the model is another one"
        )
    else:
        check(view["model"] is None, f"a model was released by a session that is {view['phase']}")
        check(_code(view) != "internal", f"a bug ended the session: {view['failure']}")
    if all(act.survivable for act in acts):
        check(
            view["phase"] == "COMPLETED",
            f"the session is {view['phase']} ({view['failure']}) after faults it must survive",
        )
        check(len(closed) == undisturbed["visits_closed"], f"only the visits {sorted(closed)} were closed")
    return check


def _code(view: dict[str, Any]) -> str | None:
    return view["failure"]["code"] if view["failure"] else None
