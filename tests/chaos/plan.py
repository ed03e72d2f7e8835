"""What goes wrong when, drawn from a seed: kills, pauses and cut networks for the containers of a deployment. Knows no container engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

GAP_S = (2.0, 6.0)
"""Between the beginnings of two faults."""
AWAY_S = (0.5, 5.0)
"""How long one lasts. Longer than the services' first retries, shorter than a holder's lease."""


class Kind(StrEnum):
    """What happens to a container."""

    KILL = "kill"  # its processes die; it starts again
    PAUSE = "pause"  # its processes hang, its peers' packets are accepted
    CUT = "cut"  # one of its networks is gone


WEIGHTS = {Kind.KILL: 2, Kind.PAUSE: 1, Kind.CUT: 1}


@dataclass(frozen=True)
class Fault:
    """One fault: seconds after the session's start, seconds until it is taken back. `network` for `CUT` only."""

    at_s: float
    kind: Kind
    target: str
    away_s: float
    network: str = ""

    @property
    def back_s(self) -> float:
        """When it is over."""
        return self.at_s + self.away_s

    def __str__(self) -> str:
        return f"{self.kind} {self.target}{f' from network {self.network}' if self.network else ''} for {self.away_s:.1f} s"


def plan(seed: int, seconds: float, networks: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Faults that begin within `seconds`, in order; two never overlap on one container, several may be away at once.

    Args:
        networks: the networks of each service that may be hit.
    """
    draw, at, faults = random.Random(seed), 0.0, list[Fault]()
    free = dict.fromkeys(sorted(networks), 0.0)
    while (at := at + draw.uniform(*GAP_S)) < seconds:
        standing = [name for name, since in free.items() if since <= at]
        if not standing:
            continue
        target = draw.choice(standing)
        kind = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        network = draw.choice(sorted(networks[target])) if kind is Kind.CUT else ""
        fault = Fault(at, kind, target, draw.uniform(*AWAY_S), network)
        free[target] = fault.back_s
        faults.append(fault)
    return faults
