"""HOSTILE CODE (attack tour): what an attack of the tour is. Knows no attack by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gput.local.attacks.result import Result
from gput.local.attacks.stage import Stage
from shared.names import TravelMode

EVERY = (TravelMode.SCOPED, TravelMode.PAPER, TravelMode.DIRECT)


@dataclass(frozen=True)
class Attack:
    """`rows`: ids of the adversary table; `modes`: where it can be run, the first by default; `defence`: what the table says stops it.

    `run` sets the stage up, starts it, and looks from outside at what came of it. `rounds`, `steps`: passes over the holders and
    training steps per visit that it needs.
    """

    name: str
    rows: tuple[str, ...]
    modes: tuple[TravelMode, ...]
    who: str
    what: str
    defence: str
    run: Callable[[Stage], Awaitable[Result]]
    rounds: int = 2
    steps: int = 2
