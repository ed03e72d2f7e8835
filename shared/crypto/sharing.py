"""Shamir's secret sharing of one 32-byte key among a session's holders: any `threshold` shares give it back. Knows no storage and no wire.

    f(x) = key + c_1 x + … + c_(k-1) x^(k-1)  over the prime field of P = 2^256 + 297;  the share of the i-th of n holders is f(i), i from 1

Adi Shamir, "How to share a secret", CACM 22 (1979). The coefficients are drawn from the key itself (HKDF), so dealing again gives the same
shares and nothing but the key need be kept. Fewer than k shares therefore say nothing to whoever cannot search 2^256 keys or break HKDF,
rather than nothing at all. With k = 1 every share is the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shared.canonical import cbor_bytes, sha256
from shared.crypto.schedule import KEY_BYTES, share_coefficient
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed

PRIME: Final = 2**256 + 297
SHARE_BYTES: Final = 33
"""Of one share, big-endian: the field is a little larger than 32 bytes hold."""


@dataclass(frozen=True)
class Plan:
    """Among whom a session's key is shared: `holders` in the roster's order, `threshold` of whom give it back."""

    session: str
    holders: tuple[str, ...]
    threshold: int

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= len(self.holders) < PRIME or len(set(self.holders)) != len(self.holders):
            raise ValueError("a key is shared among distinct holders, of whom at least one and at most all are needed")

    def point(self, holder: str) -> int:
        """Where the holder's share lies on the polynomial, from 1. Raises: ValueError: it is none of the plan's."""
        return self.holders.index(holder) + 1


def deal(key: Secret, plan: Plan, holders: Iterable[str] | None = None) -> dict[str, Secret]:
    """Every holder's share (33 bytes) of a key of 32 bytes, or that of these `holders`; the same key and plan give the same shares."""
    coefficients = [int.from_bytes(key.reveal())]
    for number in range(1, plan.threshold):
        drawn = share_coefficient(key.reveal(), plan.session, plan.holders, plan.threshold, number)
        coefficients.append(int.from_bytes(drawn) % PRIME)
    wanted = plan.holders if holders is None else holders
    return {holder: Secret(_at(coefficients, plan.point(holder)).to_bytes(SHARE_BYTES)) for holder in wanted}


def combine(shares: Mapping[str, Secret], plan: Plan) -> Secret:
    """The key that the first `threshold` of these shares give, by Lagrange interpolation at 0.

    A share that is not the dealt one gives another key, and nothing here can tell: compare `share_digest` before, and the key after.

    Raises:
        VerificationFailed: code `shares-do-not-fit`: too few, malformed, or together no 32-byte key.
    """
    given = [holder for holder in plan.holders if holder in shares][: plan.threshold]
    values = {plan.point(holder): int.from_bytes(shares[holder].reveal()) for holder in given}
    sound = all(len(shares[holder]) == SHARE_BYTES for holder in given) and all(v < PRIME for v in values.values())
    if len(given) < plan.threshold or not sound:
        raise _unfit(f"{len(given)} of {plan.threshold} shares, or one of them malformed")
    found = sum(value * _weight(point, values) for point, value in values.items()) % PRIME
    if found >= 2 ** (8 * KEY_BYTES):
        raise _unfit("together they give no key")
    return Secret(found.to_bytes(KEY_BYTES))


def share_digest(plan: Plan, holder: str, share: Secret) -> bytes:
    """SHA-256 (32 bytes) that tells a holder's share from any other and gives nothing of it away: a share has 256 bits of entropy."""
    return sha256(cbor_bytes(["gput/share-digest", plan.session, holder, plan.point(holder), share.reveal()]))


def _at(coefficients: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value


def _weight(point: int, points: Mapping[int, int]) -> int:
    """Lagrange's basis polynomial of one point, at 0."""
    above = below = 1
    for other in points:
        if other != point:
            above = above * other % PRIME
            below = below * (other - point) % PRIME
    return above * pow(below, -1, PRIME)


def _unfit(why: str) -> VerificationFailed:
    return VerificationFailed(f"the shares do not give the session's key: {why}", code="shares-do-not-fit")
