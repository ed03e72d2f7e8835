"""What comes into the GPU from outside: who it is, chance, time, its durable counter. Knows no memory and no command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Doors:
    """What comes in from outside: identity, chance, time (`clock`: seconds since 1970, for what expires; `timer`: seconds that nobody sets,
    for how long is waited), the durable boot counter, the statement key.

    `next_boot` advances the boot counter, at power-on and at each wipe. `sign_statement` makes a COSE_Sign1 of a payload.
    """

    device: str
    backend: Literal["EMULATED", "HARDWARE"]
    entropy: Callable[[int], bytes]
    clock: Callable[[], float]
    timer: Callable[[], float]
    next_boot: Callable[[], int]
    sign_statement: Callable[[bytes], bytes]
