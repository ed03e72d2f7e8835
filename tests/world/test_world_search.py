"""The search itself: it finds what plain search finds, and a secret in any of its disguises."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from tests.world.world_search import Search, disguises, leaks

FEW_LETTERS = st.binary(max_size=60).map(lambda data: bytes(byte % 3 for byte in data))
NEEDLES = st.lists(st.binary(min_size=8, max_size=12).map(lambda data: bytes(b % 3 for b in data)), max_size=20)


@given(FEW_LETTERS, NEEDLES, st.data())
def test_it_finds_what_plain_search_finds(hay: bytes, needles: list[bytes], data: st.DataObject) -> None:
    if needles:  # chance alone seldom hides one
        hay += data.draw(st.sampled_from(needles)) + data.draw(FEW_LETTERS)
    assert set(Search(needles).find(hay)) == {needle for needle in needles if needle in hay}


@given(st.binary(min_size=48, max_size=48), st.binary(max_size=9), st.binary(max_size=9))
def test_a_secret_is_found_in_every_disguise(secret: bytes, before: bytes, after: bytes) -> None:
    whole = before + secret + after
    for step in (1, 8):
        needles = disguises(secret, step)
        for hay in (whole, whole.hex().encode(), whole.hex().upper().encode()):
            assert leaks([hay], needles)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            assert leaks([b"prefix", encode(whole)], needles)


def test_a_part_of_a_secret_is_found_from_fifteen_bytes_on() -> None:
    secret = bytes(range(100, 164))
    needles = disguises(secret, 8)
    for at in range(64 - 15):
        assert leaks([secret[at : at + 15]], needles)
        assert leaks([secret[at : at + 15].hex().encode()], needles)
    assert not leaks([bytes(range(100))], needles)
