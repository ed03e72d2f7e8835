"""The itinerary: which holder the GPU visits when, and with which records. Pure: knows the manifest alone, no state, no clock.

A planned visit is fixed by the manifest (design 4.1): never by a holder's mood, an epoch, an attempt or an address. So a visit
that is repeated after a crash carries the same records, and a skipped one leaves everybody else's records as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from shared.claims.manifest import Manifest
from shared.claims.visit import CursorRange
from shared.protocol.stops import last_stop, travel_order


@dataclass(frozen=True)
class PlannedVisit:
    """One stop. `index` counts all stops from 1; `round` from 1; `first_step` is the global step if nothing is skipped."""

    round: int
    index: int
    holder: str
    cursor: CursorRange
    steps: int
    first_step: int


@dataclass(frozen=True)
class Itinerary:
    """Every stop of a session, computed on demand: nothing grows with the number of rounds."""

    manifest: Manifest

    @property
    def length(self) -> int:
        """Number of planned visits."""
        return last_stop(self.manifest)

    @property
    def steps_per_round(self) -> int:
        """Training steps in one round over the whole roster."""
        return sum(self._steps.values())

    @cached_property
    def _steps(self) -> dict[str, int]:
        # Once a session: asking the manifest per holder would make every visit cost the square of the roster.
        return {entry.holder: entry.steps_per_visit or self.manifest.steps_per_visit for entry in self.manifest.roster}

    @property
    def total_steps(self) -> int:
        """Training steps of the model at the session's end if nothing is skipped, its predecessor's included."""
        return self.manifest.steps_behind + self.manifest.rounds * self.steps_per_round

    def visit(self, index: int) -> PlannedVisit:
        """The stop number `index` (1-based). Raises: IndexError beyond the last."""
        if not 1 <= index <= self.length:
            raise IndexError(f"visit {index} of {self.length}")
        round_before, place = divmod(index - 1, len(self.manifest.roster))
        order = travel_order(self.manifest, round_before + 1)
        holder = order[place]
        steps = self._steps[holder]
        before_in_round = sum(self._steps[name] for name in order[:place])
        return PlannedVisit(
            round=round_before + 1,
            index=index,
            holder=holder,
            cursor=self._cursor(holder, round_before),
            steps=steps,
            first_step=self.manifest.steps_behind + round_before * self.steps_per_round + before_in_round,
        )

    def __iter__(self) -> Iterator[PlannedVisit]:
        return (self.visit(index) for index in range(1, self.length + 1))

    def records_behind(self, position: int) -> dict[str, int]:
        """By holder, how many records of its stream lie behind `position` stops, whatever became of its visits."""
        rounds, place = divmod(position, len(self.manifest.roster))
        begun = set(travel_order(self.manifest, rounds + 1)[:place])
        return {holder: self._cursor(holder, rounds + (holder in begun)).start for holder in self._steps}

    @cached_property
    def _behind(self) -> dict[str, int]:
        return {holder: self.manifest.records_behind(holder) for holder in self._steps}

    def _cursor(self, holder: str, earlier_visits: int) -> CursorRange:
        # Every holder is visited once a round, so its earlier visits are the rounds before this one.
        count = self._steps[holder] * self.manifest.training.batch_size
        return CursorRange(
            start=self._behind[holder] + earlier_visits * count,
            count=count,
            order=self.manifest.record_order,
            seed=self.manifest.training.seed,
        )
