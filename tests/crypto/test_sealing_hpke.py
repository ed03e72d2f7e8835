"""HPKE to one-time keys: opens once, for its context only."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.crypto.hpke import OVERHEAD_BYTES, PUBLIC_BYTES, OneTimeKey, seal
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, ProtocolViolation, VerificationFailed


@given(st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=20, deadline=None)
def test_sealed_opens_once(plaintext: bytes, info: bytes) -> None:
    key = OneTimeKey.generate()
    assert len(key.public) == PUBLIC_BYTES == 1216
    sealed = seal(key.public, plaintext, info)
    assert len(sealed) == len(plaintext) + OVERHEAD_BYTES
    assert key.open(sealed, info) == plaintext
    assert key.used
    with pytest.raises(ProtocolViolation) as caught:
        key.open(sealed, info)
    assert caught.value.code == "one-time-key-used"


@pytest.mark.parametrize("position", [0, 1087, 1088, 1119, 1120, -16, -1])
def test_any_changed_byte_fails_and_spends_the_key(position: int) -> None:
    key = OneTimeKey.generate()
    sealed = bytearray(seal(key.public, b"x" * 40, b"info"))
    sealed[position] ^= 1
    with pytest.raises(VerificationFailed) as caught:
        key.open(bytes(sealed), b"info")
    assert caught.value.code == "hpke-open"
    assert key.used


def test_other_context_other_key_and_truncation_fail() -> None:
    one, other = OneTimeKey.generate(), OneTimeKey.generate()
    sealed = seal(one.public, b"secret", b"visit 1")
    for key, message, info in (
        (other, sealed, b"visit 1"),
        (OneTimeKey.generate(), b"", b""),
        (one, sealed, b"visit 2"),
    ):
        with pytest.raises(VerificationFailed):
            key.open(message, info)


def test_malformed_public_keys_are_refused() -> None:
    key = OneTimeKey.generate()
    for public in (b"", key.public[:-1], key.public + b"\0", b"\xff" * 1184 + key.public[1184:]):
        with pytest.raises(BadRequest):
            seal(public, b"", b"")
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_visit_key_round_trips_and_hides() -> None:
    key = VisitKey(key=b"k" * 32, iv_mask=b"m" * 12, engine=2, channel_counter=7)
    assert VisitKey.from_bytes(key.to_bytes()) == key
    assert "kkk" not in repr(key)
    assert "mmm" not in repr(key)
    good: dict[str, Any] = {"key": b"k" * 32, "iv_mask": b"m" * 12, "engine": 2, "channel_counter": 7}
    for change in ({"key": b"k" * 31}, {"iv_mask": b""}, {"engine": -1}, {"channel_counter": 2**32}, {"engine": True}):
        with pytest.raises(BadRequest) as caught:
            VisitKey(**{**good, **change})
        assert "kkk" not in caught.value.detail
    for data in (b"", b"\xa0", key.to_bytes() + b"\0"):
        with pytest.raises(BadRequest):
            VisitKey.from_bytes(data)
