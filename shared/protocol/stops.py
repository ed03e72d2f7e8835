"""Which holder is at which stop: a pure function of the manifest, for whoever plans visits, is offered one, or reads its receipt.

Stops are counted from 1 over all rounds; each round has every holder of the roster once. Knows no visit, no state and no signature.
"""

from __future__ import annotations

from hashlib import shake_256

from shared.canonical import cbor_bytes
from shared.claims.manifest import Manifest


def last_stop(manifest: Manifest) -> int:
    """Number of planned stops, which is the last one's own."""
    return manifest.rounds * len(manifest.roster)


def round_of(manifest: Manifest, stop: int) -> int:
    """The round (from 1) that a stop is in."""
    return (stop - 1) // len(manifest.roster) + 1


def travel_order(manifest: Manifest, round_number: int) -> tuple[str, ...]:
    """Holders of one round in travel order: the roster's, or a Fisher-Yates shuffle drawn from (seed, round)."""
    names = [entry.holder for entry in manifest.roster]
    if manifest.visit_order == "roster":
        return tuple(names)
    # SHAKE-256 rather than `random`: the order must be the same in every version of every language.
    draws = shake_256(cbor_bytes(["gput/visit-order", manifest.training.seed, round_number]))
    stream = draws.digest(8 * len(names))
    for last in range(len(names) - 1, 0, -1):
        chosen = int.from_bytes(stream[8 * last : 8 * last + 8], "big") % (last + 1)
        names[last], names[chosen] = names[chosen], names[last]
    return tuple(names)


def holder_at(manifest: Manifest, stop: int) -> str:
    """Whose stop it is, from 1 on, also beyond the last round."""
    return travel_order(manifest, round_of(manifest, stop))[(stop - 1) % len(manifest.roster)]
