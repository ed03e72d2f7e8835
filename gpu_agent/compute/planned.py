"""Where a program's tensors lie under given options: worked out once, by the compute parent, for all its workers. Knows no byte of them.

Placing the tensors of a small program takes a millisecond, and twice that in a process that was just forked, whose every first touch
copies a page: a worker did so before its launch and again in it, while a visit waited for the same cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.claims.layout import MemoryPlan, plan_memory
from shared.claims.program import ProgramManifest
from shared.claims.training import TrainingOptions


@dataclass(frozen=True)
class Planned:
    """`stated`: the options as a launch states them (JSON); `accumulate`: as `Launch.accumulate`."""

    stated: Mapping[str, object]
    accumulate: bool
    options: TrainingOptions
    plan: MemoryPlan

    def serves(self, stated: Mapping[str, object], accumulate: bool) -> bool:
        """Whether it is what `planned` would give for these."""
        return self.accumulate == accumulate and self.stated == stated


def planned(manifest: ProgramManifest, stated: Mapping[str, object], accumulate: bool) -> Planned:
    """Place a program's tensors. Raises: ValidationError: those are no options."""
    options = TrainingOptions.model_validate(stated)
    return Planned(stated, accumulate, options, plan_memory(manifest, options, accumulate))


def by_default(manifest: ProgramManifest) -> Planned:
    """As a program's own options have it, for whoever has heard of no launch yet."""
    return planned(manifest, manifest.defaults.model_dump(mode="json"), False)
