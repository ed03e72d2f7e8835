"""The accumulator: gradients of a tour's batches, added up until it ends. Knows tensors over the caller's bytes; no visit, no holder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gpu_agent.workload.optimiser import Optimiser
from shared.claims.layout import ACCUMULATED, TOUR_BATCHES, TOUR_STEPS


class Accumulator:
    """Sum of gradients, and its two counters, among the optimiser's tensors.

    The sum is divided when the step is taken and not batch by batch: how many batches a tour has is known at its end only, for a visit
    may be left out. So the step is that of the mean over exactly the batches that took part.

    Args:
        moments: the optimiser region's tensors (`shared.claims.layout.plan_memory` with `accumulate`).
        names: of the parameters, in the manifest's order.
    """

    def __init__(self, moments: Mapping[str, Tensor], names: Sequence[str]) -> None:
        self.sums = {name: moments[f"{ACCUMULATED}/{name}"] for name in names}
        self._batches, self._steps = moments[TOUR_BATCHES], moments[TOUR_STEPS]

    def count(self) -> None:
        """One more batch's gradient was added."""
        self._batches.add_(1)

    def step(self, optimiser: Optimiser) -> bool:
        """One step with the mean of all that was added, then begin anew; False, and no step, where there is nothing or it is no number."""
        batches, steps = int(self._batches.item()), int(self._steps.item())
        with torch.no_grad():
            finite = batches > 0 and all(bool(torch.isfinite(total).all()) for total in self.sums.values())
            if not finite:
                return False
            for total in self.sums.values():
                total.div_(batches)
        optimiser.begin(steps)
        optimiser.step(steps)
        self._steps.add_(1)
        self.clear()
        return True

    def clear(self) -> None:
        """Begin anew; nothing of the sum remains."""
        for total in self.sums.values():
            total.zero_()
        self._batches.zero_()

    def norm_beside(self, committed: Mapping[str, Tensor]) -> float:
        """Euclidean norm of what was added since `committed`, the optimiser region's tensors as they were last committed."""
        with torch.no_grad():
            squares = [
                torch.sum((total.double() - committed[f"{ACCUMULATED}/{name}"].double()) ** 2)
                for name, total in sorted(self.sums.items())
            ]
        return math.sqrt(float(sum(squares)))
