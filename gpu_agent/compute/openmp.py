"""How PyTorch's threads wait for one another: the compute parent's environment for OpenMP. Knows libgomp; no tensor, no launch.

A step has hundreds of places where one thread waits for the others. libgomp lets it spin there for 14 ms before it sleeps, which is
right where each has a core of its own. Where another program wants one of the cores, what it spins is what the thread that it waits
for would need: measured, a step takes 9 to 46 times as long. A quarter of a millisecond is as quick with nothing beside it, and
keeps a step near its share of the cores with something (ADR 6). What is computed does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPINS: Final = 5000
"""Looks at whether the others are there (each with a pause of some 50 ns), before a thread sleeps."""
_SPINS: Final = "GOMP_SPINCOUNT"
_STATED: Final = (_SPINS, "OMP_WAIT_POLICY")


def with_short_spins(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which libgomp's threads spin for a short time (libgomp manual, `GOMP_SPINCOUNT`), unless it says how they wait."""
    if any(name in environment for name in _STATED):
        return dict(environment)
    return {**environment, _SPINS: str(SPINS)}
