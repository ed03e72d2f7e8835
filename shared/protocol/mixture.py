"""The order in which a collected tour's records are trained on: one shuffle over all of its visits' records. Knows no dataset, no tensor.

The GPU computes it from the seed that its command names; whoever has the manifest computes that seed. The records are those of the tour's
visits one after another, in the visits' order; position p of the training is record `mixture_order(seed, n).records(p)` of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shared.canonical import cbor_bytes, sha256
from shared.claims.visit import CursorRange
from shared.protocol.different_records import AT_ONCE, LONGEST, effort, fewest_among, times
from shared.protocol.record_order import Shuffle, order, records_of


@dataclass(frozen=True)
class Brought:
    """What one visit brings to a mixture: `cursor` of the dataset with this root (hex), which has `n` records."""

    dataset: str
    n: int
    cursor: CursorRange


def mixture_seed(seed: int, round_number: int) -> int:
    """Seed of one round's mixture, 53 bits (whole in JSON): of session seed and round, not of an attempt or of who took part."""
    return int.from_bytes(sha256(cbor_bytes(["gput/mixture-seed", seed, round_number]))[:8], "big") >> 11


def mixture_order(seed: int, records: int) -> Shuffle:
    """The order of `records` records in all under a mixture's seed."""
    return order(seed, records)


class Mixing:
    """A mixture of what visits bring, in their order: which records are where in it, and which of them are the same."""

    def __init__(self, seed: int, brought: Sequence[Brought]) -> None:
        self._brought = tuple(brought)
        self._order = mixture_order(seed, sum(one.cursor.count for one in brought))
        self._effort = sum(effort(one.cursor, one.n) for one in brought)
        self._times: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        for one in brought:
            self._times[one.dataset] += times(one.cursor, one.n)
            self._sizes[one.dataset] = max(one.n, self._sizes.get(one.dataset, 0))

    def fewest(self, batch: int, steps: int, enough: int) -> int:
        """Different records in that one of the training's first `steps` steps, of `batch` records each, which has fewest of them, so far as
        `different_records` tells such a number."""
        most, surely = min(batch, sum(self._sizes.values())), -(-batch // max(self._times.values()))
        if surely >= enough or most < enough:
            return min(most, surely)
        if self._effort > LONGEST:
            return surely
        names = self._names()
        return fewest_among(
            lambda places: names[self._order.records(places)], np.arange(0, steps * batch, batch), batch, enough
        )

    def _names(self) -> NDArray[np.int64]:
        """Of every record that is brought, in the visits' order: a number that only the same record has, whoever brings it."""
        before = dict(zip(self._sizes, accumulate(self._sizes.values(), initial=0), strict=False))
        pieces = [
            before[one.dataset] + records_of(one.cursor, one.n, first, min(AT_ONCE, one.cursor.count - first))
            for one in self._brought
            for first in range(0, one.cursor.count, AT_ONCE)
        ]
        return np.concatenate(pieces)
