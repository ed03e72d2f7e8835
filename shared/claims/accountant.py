"""The privacy accountant: what a plan spends of each holder's privacy. Pure arithmetic over the manifest; knows no data and no noise.

One record's part in a session is a composition of Gaussian mechanisms that the plan fixes. Two datasets are neighbours when they differ
in one record, which in the other contributes nothing (add/remove with the number of records stated publicly). Where a record is in a step
m times, that step's sum moves by at most m·C against noise of deviation σ·C. Gaussian mechanisms compose exactly: all of them together are
one with deviation σ/√w, w the sum of m² over the steps (Dong, Roth, Su, Gaussian Differential Privacy, 2022, corollary 3.3). Its epsilon at
delta is exact, too: Balle and Wang, Improving the Gaussian Mechanism, ICML 2018, theorem 8.

Nothing is claimed for sampling: the order of records is public. Nothing is taken off for visits that did not come: a stop's records
count as spent when it lies behind, so that the number needs nothing but manifest, round and the holder's number of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

from shared.claims.faults import Finding
from shared.claims.manifest import Manifest
from shared.claims.privacy import PrivacySpent

DECIMALS: Final = 4
"""Epsilon is told rounded up to this."""
_SERIES_FROM: Final = 25.0
_SQRT2: Final = math.sqrt(2.0)


def delta_of(epsilon: float, deviation: float) -> float:
    """The least delta with which one Gaussian mechanism of sensitivity 1 and this deviation is (epsilon, delta)-private.

    With a = 1/(2σ) − εσ and b = 1/(2σ) + εσ: δ = Φ(a) − e^ε Φ(−b). As b² − a² = 2ε, the second term is e^(−a²/2) erfcx(b/√2) / 2, in which
    nothing overflows however large epsilon is.
    """
    half, shift = 1.0 / (2.0 * deviation), epsilon * deviation
    a, b = half - shift, half + shift
    tail = math.exp(-a * a / 2.0) / 2.0
    if a < 0:  # both terms are small and alike: their common factor first
        return max(0.0, tail * (_erfcx(-a / _SQRT2) - _erfcx(b / _SQRT2)))
    return max(0.0, math.erfc(-a / _SQRT2) / 2.0 - tail * _erfcx(b / _SQRT2))


def _erfcx(x: float) -> float:
    """e^(x²) erfc(x) for x ≥ 0; from 25 on by its asymptotic series (Abramowitz and Stegun 7.1.23), exact to 1e-13 there."""
    if x < _SERIES_FROM:
        return math.exp(x * x) * math.erfc(x)
    term, total, y = 1.0, 1.0, 2.0 * x * x
    for odd in range(1, 12, 2):
        term *= -odd / y
        total += term
    return total / (x * math.sqrt(math.pi))


@lru_cache(maxsize=4096)
def epsilon_of(delta: float, deviation: float) -> float:
    """The least epsilon of one Gaussian mechanism of sensitivity 1 at `delta`, from above to the last digit of a float."""
    if delta_of(0.0, deviation) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high, deviation) > delta:
        low, high = high, 2.0 * high
    while True:
        middle = (low + high) / 2.0
        if not low < middle < high:
            return high
        low, high = (middle, high) if delta_of(middle, deviation) > delta else (low, middle)


def weight(positions: int, records: int, batch: int, order: Literal["sequential", "shuffled"]) -> int:
    """The most that the squares of one record's appearances in steps can sum up to.

    Args:
        positions: of the holder's endless stream, from its start on; `records` of them are one pass, `batch` of them one step.

    Every record comes once a pass. A step of a sequential stream, or one that fits evenly into passes, holds a record as often as passes
    fit into it. A shuffled step over the border between two passes can hold it once in each; it is counted as if it always did.
    """
    times = -(-positions // records)
    even = order == "sequential" or records % batch == 0 or batch % records == 0
    most = -(-batch // records) if even else (batch - 2) // records + 2
    full, rest = divmod(times, most)
    return full * most * most + rest * rest


def spent(manifest: Manifest, holder: str, rounds: int, records: int | None) -> PrivacySpent | None:
    """What the visits to `holder` in the first `rounds` rounds spend of any of its records at most; None without privacy.

    Args:
        records: of the holder's dataset; None: as if there were enough for each to take part once.
    """
    return None if manifest.privacy is None else spent_in(manifest, rounds * manifest.steps_for(holder), records)


def spent_in(manifest: Manifest, steps: int, records: int | None) -> PrivacySpent | None:
    """As `spent`, in so many steps on a holder's records, whoever it is."""
    privacy, batch = manifest.privacy, manifest.training.batch_size
    if privacy is None:
        return None
    positions = steps * batch
    parts = weight(positions, max(records or positions, 1), batch, manifest.record_order)
    if not parts:
        return PrivacySpent(epsilon=0.0, delta=privacy.delta)
    epsilon = epsilon_of(privacy.delta, privacy.noise_multiplier / math.sqrt(parts))
    scale = 10**DECIMALS
    return PrivacySpent(epsilon=math.ceil(epsilon * scale) / scale, delta=privacy.delta)


def over_budget(manifest: Manifest, holder: str, records: int | None) -> str:
    """Why this holder's privacy would not be what the manifest says, with both numbers; "" if it would."""
    privacy, planned = manifest.privacy, spent(manifest, holder, manifest.rounds, records)
    if privacy is None or planned is None:
        return ""
    whose = f"{holder} with {records} records" if records else f"{holder}, however many records it brings,"
    if privacy.max_epsilon is not None and planned.epsilon > privacy.max_epsilon:
        return (
            f"the plan spends epsilon {planned.epsilon:g} of {whose} at delta {privacy.delta:g}; "
            f"max_epsilon is {privacy.max_epsilon:g}"
        )
    if records and privacy.delta * records >= 1:
        return f"delta {privacy.delta:g} is not below one in the {records} records of {holder}: it would allow one to be told outright"
    return ""


def privacy_findings(manifest: Manifest) -> Iterator[Finding]:
    """What can be said against a manifest's privacy before any holder has named its records."""
    faults = {entry.holder: over_budget(manifest, entry.holder, None) for entry in manifest.roster}
    reason = next(filter(None, faults.values()), "")
    if reason:
        yield Finding("privacy.max_epsilon", reason, "Raise noise_multiplier, or allow more epsilon.", "privacy-budget")
