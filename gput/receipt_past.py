"""Where a saved log stands, leaf by leaf, and where it stood: what the next visit may start from. Knows no receipt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from shared.errors import VerificationFailed
from shared.protocol.log_events import chosen, restored_to

Stood = TypeVar("Stood")


def gone_back(stood: Sequence[tuple[int, Stood]], position: int) -> tuple[list[tuple[int, Stood]], set[Stood]]:
    """What counts still of what stood, each with the number of stops behind it then, after a restore to `position`; and what stands now.

    What was sealed there is what the last of the stops up to there left. A tour's end has no stop of its own: where one lies between, it
    may have been sealed before or behind it.
    """
    counting = [one for one in stood if one[0] <= position]
    latest = max((stop for stop, _ in counting), default=0)
    return counting, {state for stop, state in counting if stop == latest}


class Reached(NamedTuple):
    """A model (digest, hex), and the steps that led to it."""

    model: str
    step: int


@dataclass
class Past:
    """`stands`: what the next visit may start from, of which `ends` may be the last; empty before anything is known but `began`, the step
    of the first model.

    `stood`: all that counts, with the number of stops behind it then; in the order of the log, and so of the stops.
    """

    began: int = 0
    stood: list[tuple[int, Reached]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    stands: set[Reached] = field(default_factory=set)
    ends: set[Reached] = field(default_factory=set)

    @classmethod
    def from_model(cls, model: str, step: int) -> Self:
        """Before the first visit, which begins with a model that is known."""
        first = Reached(model, step)
        return cls(step, [(0, first)], {model}, {first}, {first})

    def start(self, model: str, step: int | None, who: str, stands: Collection[Reached]) -> set[Reached]:
        """Where a visit starts, of what it may start from (`stands`). A tour's end has no step (None), and starts wherever the log stands.

        Raises:
            VerificationFailed: `model-gap`, `step-gap`.
        """
        may = stands or {Reached(model, self.began)}
        found = {one for one in may if one.model == model}
        if not found:
            gone_back = "an earlier model, and no leaf tells of a restore to it"
            why = gone_back if model in self.known else "a model that no earlier receipt left"
            raise VerificationFailed(f"{who} starts from {why}", code="model-gap")
        begun = {one for one in found if step in (one.step, None)}
        if not begun:
            raise VerificationFailed(
                f"{who} does not count on from the steps before it", code="step-gap",
                expected=" or ".join(str(one.step) for one in sorted(found)), got=str(step),
            )  # fmt: skip
        return begun

    def leave(self, stop: int | None, before: set[Reached], after: set[Reached]) -> None:
        """A visit at this stop, or a tour's end (None), has led from here to there, or nowhere."""
        if not self.stood:
            self.stood.extend((0, one) for one in before)
        behind = self.stood[-1][0] if stop is None else stop
        self.stood.extend((behind, one) for one in sorted(after))
        self.known |= {one.model for one in before | after}
        self.stands = self.ends = after

    def hear(self, event: list[Any], *, releases_best: bool) -> None:
        """A restore, or the choice of the model with the least held-out loss, moves it.

        Raises:
            VerificationFailed: `model-gap`, `mismatch`, `malformed`.
        """
        position, best = restored_to(event), chosen(event)
        if position is not None:
            self.stood, self.stands = gone_back(self.stood, position)
            self.ends = self.stands
        if best is not None:
            self._chosen(best, releases_best=releases_best)

    def _chosen(self, model: str, *, releases_best: bool) -> None:
        if not releases_best:
            raise VerificationFailed(
                "the choice of a best model in a session that releases its last one", code="mismatch"
            )
        best = {one for _, one in self.stood if one.model == model}
        if not best:
            raise VerificationFailed("the chosen model is one that no earlier receipt left", code="model-gap")
        self.stood.extend((self.stood[-1][0], one) for one in sorted(best))
        # A late approval may bring a visit before the GPU has gone back to it.
        self.stands, self.ends = self.stands | best, best
