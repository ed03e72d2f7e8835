"""How many answers that may take long (streams of events, requests that wait for news) one caller has under way. Knows no route.

Each holds a connection for as long as its caller likes, and of connections there are only so many: without a bound one caller would keep
everybody else out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.errors import TooManyWaits
from shared.service.signatures import Caller

MAX_OF_A_CALLER: Final = 32
AGAIN_S: Final = 5.0


class Waits:
    """Those of one service, by caller: a key, or whoever a token was given to."""

    def __init__(self) -> None:
        self._under_way: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def of(self, caller: Caller) -> Iterator[None]:
        """Inside, one more of this caller is under way. Raises: TooManyWaits: it has as many as it may."""
        who = (caller.fingerprint, caller.name)
        if self._under_way[who] >= MAX_OF_A_CALLER:
            raise TooManyWaits(
                f"{caller.name} has {MAX_OF_A_CALLER} streams and waiting requests under way, as many as one caller may",
                remedy="End some of them, or ask without waiting.", retry_after_s=AGAIN_S,
            )  # fmt: skip
        self._under_way[who] += 1
        try:
            yield
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]
