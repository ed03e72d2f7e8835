"""The order in which a collected tour's records are trained on: one shuffle over all of its visits' records. Knows no dataset, no tensor.

The GPU computes it from the seed that its command names; whoever has the manifest computes that seed. The records are those of the tour's
visits one after another, in the visits' order; position p of the training is record `mixture_order(seed, n).records(p)` of them.
"""

from __future__ import annotations

from shared.canonical import cbor_bytes, sha256
from shared.protocol.record_order import Shuffle, order


def mixture_seed(seed: int, round_number: int) -> int:
    """Seed of one round's mixture, 53 bits (whole in JSON): of session seed and round, not of an attempt or of who took part."""
    return int.from_bytes(sha256(cbor_bytes(["gput/mixture-seed", seed, round_number]))[:8], "big") >> 11


def mixture_order(seed: int, records: int) -> Shuffle:
    """The order of `records` records in all under a mixture's seed."""
    return order(seed, records)
