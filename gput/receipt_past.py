"""Which model a saved log stands at, leaf by leaf, and which ones it stood at: what the next visit may start from. Knows no receipt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Self

from shared.errors import VerificationFailed
from shared.protocol.log_events import chosen, restored_to


@dataclass
class Past:
    """`stands`: models that the next visit may start from, of which `ends` may be the last; empty before anything is known.

    `stood`: every model that counts, with the number of stops behind it then; in the order of the log, and so of the stops.
    """

    stood: list[tuple[int, str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    stands: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)

    @classmethod
    def from_model(cls, model: str) -> Self:
        """Before the first visit, which begins with a model that is known."""
        return cls([(0, model)], {model}, {model}, {model})

    def check_start(self, model: str, who: str, stands: Collection[str]) -> None:
        """`stands`: what it may start from. Raises: VerificationFailed `model-gap`."""
        if not stands or model in stands:
            return
        gone_back = "an earlier model, and no leaf tells of a restore to it"
        why = gone_back if model in self.known else "a model that no earlier receipt left"
        raise VerificationFailed(f"{who} starts from {why}", code="model-gap")

    def leave(self, stop: int | None, before: str, after: str) -> None:
        """A visit at this stop, or a tour's end (None), has led from one model to another, or to the same."""
        if not self.stood:
            self.stood.append((0, before))
        self.stood.append((self.stood[-1][0] if stop is None else stop, after))
        self.known |= {before, after}
        self.stands = self.ends = {after}

    def hear(self, event: list[Any], *, releases_best: bool) -> None:
        """A restore, or the choice of the model with the least held-out loss, moves it.

        Raises:
            VerificationFailed: `model-gap`, `mismatch`, `malformed`.
        """
        position, best = restored_to(event), chosen(event)
        if position is not None:
            self._restored(position)
        if best is not None:
            self._chosen(best, releases_best=releases_best)

    def _restored(self, position: int) -> None:
        """What was sealed there is what the last of the stops up to there left. A tour's end has no stop of its own: where one lies
        between, it may have been sealed before or behind it."""
        self.stood = [one for one in self.stood if one[0] <= position]
        latest = max((stop for stop, _ in self.stood), default=0)
        self.stands = self.ends = {model for stop, model in self.stood if stop == latest}

    def _chosen(self, model: str, *, releases_best: bool) -> None:
        if not releases_best:
            raise VerificationFailed(
                "the choice of a best model in a session that releases its last one", code="mismatch"
            )
        if model not in {one for _, one in self.stood}:
            raise VerificationFailed("the chosen model is one that no earlier receipt left", code="model-gap")
        self.stood.append((self.stood[-1][0], model))
        # A late approval may bring a visit before the GPU has gone back to it.
        self.stands, self.ends = {*self.stands, model}, {model}
