"""What a piece of work costs one thread's processor, so that a test may say "not more than". Knows no work, and never a wall clock.

Only for limits well above the cost, three times at the least: they tell work that grows out of hand from work that does not, and no fast
machine from a slow one. Three things that are none of the work's are kept out: other threads, one dear round (what is read the first
time, a core that is shared), and the collector, which goes over all that every test before has left: 3 s were seen within 10 ms of work.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ROUNDS = 5


def cpu_seconds(act: Callable[[], object], limit: float) -> float:
    """The least that `act` took in up to five rounds, in seconds; the first within `limit` seconds ends them. Assert that it is below."""
    least = float("inf")
    for _ in range(ROUNDS):
        least = min(least, _one(act))
        if least < limit:
            break
    return least


def _one(act: Callable[[], object]) -> float:
    collecting = gc.isenabled()
    gc.disable()
    try:
        begun = time.thread_time()
        act()
        return time.thread_time() - begun
    finally:
        if collecting:
            gc.enable()
