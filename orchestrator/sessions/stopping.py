"""When a session has learnt enough: held-out checks in a row without a new least loss. Pure: knows the checks alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Check:
    """One held-out check of a model that was kept. `position`: stops of the itinerary behind it; 0: the initial model; `followed`: how many
    right behind it found no less loss and were let go of, but for their number."""

    position: int
    loss: float
    followed: int = 0


def without_progress(checks: Sequence[Check]) -> int:
    """How many checks have followed the one with the least loss; of equal ones the first counts."""
    return _after_least(checks) if checks else 0


def newly_best(checks: Sequence[Check], position: int) -> bool:
    """Whether the newest check was made at `position` and found the least loss."""
    return bool(checks) and checks[-1].position == position and without_progress(checks) == 0


def enough(checks: Sequence[Check], patience: int | None) -> str:
    """Why the session ends here; empty if it goes on. `patience`: checks without a new least loss that it waits for; None: for ever."""
    waited = without_progress(checks)
    if patience is None or waited < patience:
        return ""
    best = checks[_least(checks)]
    where = f"after visit {best.position}" if best.position else "before the first visit"
    return f"the held-out loss was least {where} ({best.loss}) and not less in the {waited} checks since"


def added(checks: Sequence[Check], position: int, loss: float | None) -> list[Check]:
    """With one more check, in place of one of the same model before a restore; without, if no loss was measured."""
    return list(checks) if loss is None else [*gone_back(checks, position - 1), Check(position, loss)]


def gone_back(checks: Sequence[Check], position: int) -> list[Check]:
    """Those that a model restored to `position` still has behind it."""
    return [check for check in checks if check.position <= position]


def needed(checks: Sequence[Check], oldest: int) -> list[Check]:
    """Without those that can decide nothing any more, where no restore goes back further than to position `oldest`: of these the least is
    kept, with the number of those that followed it, so that nothing grows however long no less loss is found."""
    behind = gone_back(checks, oldest)
    if not behind:
        return list(checks)
    least = replace(behind[_least(behind)], followed=_after_least(behind))
    return [least, *checks[len(behind) :]]


def least_at(checks: Sequence[Check]) -> int | None:
    """The stop after which the loss was least; None: nothing was checked."""
    return checks[_least(checks)].position if checks else None


def _after_least(checks: Sequence[Check]) -> int:
    at = _least(checks)
    return checks[at].followed + sum(1 + check.followed for check in checks[at + 1 :])


def _least(checks: Sequence[Check]) -> int:
    return min(range(len(checks)), key=lambda at: (checks[at].loss, at))
