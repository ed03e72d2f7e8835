"""How many refused requests an address may send: guessing and flooding end before anything is parsed or verified. Knows no route.

A token bucket per address; only refusals cost a token, so whoever is let in is never held up. Addresses that are quiet long enough to have
a full bucket are forgotten, and of too many the one that was quiet longest.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from shared.service.clock import Clock

COUNTED = frozenset({400, 401, 403, 405, 413, 414, 415, 422, 431})
"""Answers that an honest client does not provoke again and again."""
MAX_ADDRESSES = 4096


@dataclass
class _Bucket:
    tokens: float
    at: float


class Refusals:
    """Buckets of `burst` tokens that fill at `per_s` a second; `per_s` 0: no limit."""

    def __init__(self, per_s: float, burst: int, clock: Clock) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Whole seconds until this address is heard again; 0: now."""
        bucket = self._buckets.get(address)
        if bucket is None or not self._per_s:
            return 0
        self._fill(bucket)
        return 0 if bucket.tokens >= 1 else math.ceil((1 - bucket.tokens) / self._per_s)

    def answered(self, address: str, status: int) -> None:
        """Count an answer."""
        if not self._per_s or status not in COUNTED:
            return
        bucket = self._buckets.setdefault(address, _Bucket(self._burst, self._clock()))
        self._fill(bucket)
        bucket.tokens = max(0.0, bucket.tokens - 1)
        self._buckets.move_to_end(address)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    def _fill(self, bucket: _Bucket) -> None:
        now = self._clock()
        # A clock that was set back fills nothing, and does not empty either.
        bucket.tokens = min(self._burst, bucket.tokens + max(0.0, now - bucket.at) * self._per_s)
        bucket.at = now
