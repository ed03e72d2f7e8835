"""When what did not work is tried again: each time after twice as long. Knows nothing of what is tried."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Self


@dataclass(frozen=True)
class Due:
    """Something that is to be tried again: at a time of this process' own clock, `pause_s` after it was tried last."""

    at: float
    pause_s: float

    @classmethod
    def after(cls, before: Due | None, first_s: float, last_s: float) -> Self:
        """It was tried now; `before`: how long it had waited for that, nothing at its first time."""
        pause_s = first_s if before is None else min(before.pause_s * 2, last_s)
        return cls(monotonic() + pause_s, pause_s)

    @property
    def is_now(self) -> bool:
        """Whether its time has come."""
        return self.at <= monotonic()
