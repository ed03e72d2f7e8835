"""Any k shares give the key back, fewer do not even narrow it down, the same deal is always the same, and a wrong share is told apart."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto.secret import Secret
from shared.crypto.sharing import PRIME, SHARE_BYTES, Plan, combine, deal, share_digest
from shared.errors import VerificationFailed

KEYS = st.binary(min_size=32, max_size=32).map(Secret)
KEY = Secret(bytes(range(32)))
NAMES = tuple(f"h{number}" for number in range(12))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, len(NAMES)))
    return Plan("s_aaaaaaaaaaaaaaaa", NAMES[:count], draw(st.integers(1, count)))


def plan(threshold: int, holders: tuple[str, ...] = NAMES[:4], session: str = "s_aaaaaaaaaaaaaaaa") -> Plan:
    return Plan(session, holders, threshold)


def test_the_field_is_one() -> None:
    """P is prime (Pocklington's criterion would need factors of P - 1: these are forty rounds of Miller and Rabin with fixed bases)."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        assert gcd(base, PRIME) == 1
        power = pow(base, odd, PRIME)
        chain = [pow(power, 2**n, PRIME) for n in range(twos)]
        assert power == 1 or PRIME - 1 in chain
    assert 2**256 < PRIME < 2 ** (8 * SHARE_BYTES)


@given(KEYS, plans(), st.data())
def test_any_k_shares_give_the_key_and_more_do_no_harm(key: Secret, made: Plan, data: st.DataObject) -> None:
    shares = deal(key, made)
    assert set(shares) == set(made.holders)
    assert {len(share) for share in shares.values()} == {SHARE_BYTES}
    count = data.draw(st.integers(made.threshold, len(made.holders)))
    chosen = data.draw(st.permutations(made.holders))[:count]
    assert combine({holder: shares[holder] for holder in chosen}, made) == key


@given(KEYS, plans())
def test_the_same_deal_is_always_the_same(key: Secret, made: Plan) -> None:
    shares = deal(key, made)
    assert shares == deal(key, made)
    for holder in made.holders:
        assert deal(key, made, [holder]) == {holder: shares[holder]}


@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_fewer_than_k_shares_fit_every_key(threshold: int) -> None:
    """For k - 1 shares and any key at all there is a polynomial through both: nothing in the shares speaks for the right one."""
    made = plan(threshold)
    shares = deal(KEY, made)
    for few in combinations(made.holders, threshold - 1):
        with pytest.raises(VerificationFailed, match="do not give the session's key"):
            combine({holder: shares[holder] for holder in few}, made)
        last = next(holder for holder in made.holders if holder not in few)
        for other in (0, 1, int.from_bytes(KEY.reveal()) ^ 1, 2**256 - 1):
            known = {made.point(holder): int.from_bytes(shares[holder].reveal()) for holder in few}
            invented = _through(known | {0: other}, made.point(last))
            together = {holder: shares[holder] for holder in few} | {last: Secret(invented.to_bytes(SHARE_BYTES))}
            assert combine(together, made) == Secret(other.to_bytes(32))


def _through(points: dict[int, int], at: int) -> int:
    """The value at `at` of the polynomial through these points, by Lagrange."""
    total = 0
    for x, y in points.items():
        weight = y
        for other in points:
            if other != x:
                weight = weight * (at - other) * pow(x - other, -1, PRIME) % PRIME
        total += weight
    return total % PRIME


def test_shares_look_even() -> None:
    """One holder's shares of a thousand keys in a row: every bit is set about as often as not."""
    made = plan(2)
    drawn = [int.from_bytes(deal(Secret(n.to_bytes(32)), made)["h0"].reveal()) for n in range(1000)]
    for bit in range(256):
        assert 400 < sum(value >> bit & 1 for value in drawn) < 600, bit
    assert len(set(drawn)) == 1000


def test_no_share_of_one_deal_is_of_another() -> None:
    plans_ = [plan(2), plan(3), plan(2, NAMES[1:5]), plan(2, tuple(reversed(NAMES[:4]))), plan(2, session="s_b")]
    dealt = [share.reveal() for made in plans_ for share in deal(KEY, made).values()]
    assert len(set(dealt)) == len(dealt)


@given(KEYS, plans(), st.data())
def test_a_wrong_share_has_another_digest_and_gives_another_key(key: Secret, made: Plan, data: st.DataObject) -> None:
    shares = deal(key, made)
    liar = data.draw(st.sampled_from(made.holders[: made.threshold]))
    number = (int.from_bytes(shares[liar].reveal()) + data.draw(st.integers(1, 2**64))) % PRIME
    wrong = Secret(number.to_bytes(SHARE_BYTES))
    assert share_digest(made, liar, wrong) != share_digest(made, liar, shares[liar])
    with suppress(VerificationFailed):  # no key at all, once in 2^247
        assert combine(shares | {liar: wrong}, made) != key


def test_a_digest_is_of_one_session_and_holder() -> None:
    share = deal(KEY, plan(2))["h0"]
    digests = {
        share_digest(made, holder, share) for made in (plan(2), plan(2, session="s_b")) for holder in ("h0", "h1")
    }
    assert len(digests) == 4


@pytest.mark.parametrize("malformed", [b"", b"\x01" * 32, b"\xff" * 33, b"\x00" * 34])
def test_what_is_no_share_is_refused(malformed: bytes) -> None:
    made = plan(2)
    with pytest.raises(VerificationFailed) as caught:
        combine(deal(KEY, made) | {"h0": Secret(malformed)}, made)
    assert caught.value.code == "shares-do-not-fit"


@pytest.mark.parametrize(("threshold", "holders"), [(0, ("a",)), (2, ("a",)), (1, ()), (1, ("a", "a"))])
def test_no_plan_without_sense(threshold: int, holders: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="distinct holders"):
        plan(threshold, holders)
