"""The order in which a collected tour's records are trained on: one shuffle over all of its visits' records. Knows no dataset, no tensor.

The GPU computes it from the seed that its command names; whoever has the manifest computes that seed. The records are those of the tour's
visits one after another, in the visits' order; position p of the training is record `mixture_order(seed, n).records(p)` of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.canonical import cbor_bytes, sha256
from shared.claims.visit import CursorRange
from shared.protocol.record_order import Shuffle, order, records_at, times


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
        self._brought, self._ends = tuple(brought), np.cumsum([one.cursor.count for one in brought])
        self._order = mixture_order(seed, int(self._ends[-1]))
        often: Counter[str] = Counter()
        for one in brought:
            often[one.dataset] += times(one.cursor, one.n)
        self._times = max(often.values())

    def different(self, first: int, count: int, enough: int | None = None) -> int:
        """How many different records are among `count` positions of the training from `first` on. `enough`: see `record_order`."""
        if self._times == 1:
            return count
        if enough is not None and -(-count // self._times) >= enough:
            return -(-count // self._times)
        wanted = self._order.records(np.arange(first, first + count, dtype=np.int64))
        brought_by = np.searchsorted(self._ends, wanted, side="right")
        found: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        for number in np.unique(brought_by).tolist():
            one = self._brought[number]
            places = wanted[brought_by == number] - (int(self._ends[number]) - one.cursor.count)
            found[one.dataset].append(records_at(one.cursor, one.n, places))
        return sum(np.unique(np.concatenate(indexes)).size for indexes in found.values())
