"""Sealing channels under any sequence of acts: no IV twice, no skipped or replayed record, no copy of a counter. Knows no grant."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.crypto import aead
from shared.crypto.aead import OpeningChannel, SealingChannel
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation, VerificationFailed

KEY = bytes(range(32))
masks = st.binary(min_size=12, max_size=12)


class Recorder:
    """AESGCM that notes every IV it is given."""

    def __init__(self, inner: Any, ivs: list[bytes]) -> None:
        self._inner, self._ivs = inner, ivs

    def encrypt(self, iv: bytes, data: Any, aad: bytes) -> bytes:
        self._ivs.append(iv)
        return bytes(self._inner.encrypt(iv, data, aad))

    def encrypt_into(self, iv: bytes, data: Any, aad: bytes, out: Any) -> int:
        self._ivs.append(iv)
        return int(self._inner.encrypt_into(iv, data, aad, out))


def recorded(channel: SealingChannel) -> list[bytes]:
    ivs: list[bytes] = []
    channel._cipher = Recorder(channel._live(), ivs)  # type: ignore[assignment]  # a spy with the two methods in use
    return ivs


@settings(max_examples=60, deadline=None)
@given(
    masks, st.integers(0, 2**64 - 1), st.booleans(), st.lists(st.sampled_from(["seal", "into", "fault"]), max_size=40)
)
def test_no_iv_twice_whatever_fails(mask: bytes, channel_counter: int, wide: bool, acts: list[str]) -> None:
    options: dict[str, Any] = {"wide": True} if wide else {"iv_mask": mask, "channel_counter": channel_counter}
    channel = SealingChannel(KEY, label="t", **options)
    ivs = recorded(channel)
    for act in acts:
        if act == "seal":
            channel.seal(b"data", b"")
        elif act == "into":
            channel.seal_into(b"data", b"", bytearray(20))
        else:
            with pytest.raises(ValueError, match="buffer"):
                channel.seal_into(b"data", b"", bytearray(3))  # the caller's fault: the counter is spent all the same
    assert len(set(ivs)) == len(ivs) == channel.counter == len(acts)


@settings(max_examples=60, deadline=None)
@given(masks, st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1))
def test_iv_layout(mask: bytes, channel_counter: int, counter: int) -> None:
    channel = SealingChannel(KEY, label="t", iv_mask=mask, channel_counter=channel_counter)
    channel.counter = counter - 1
    ivs = recorded(channel)
    channel.seal(b"", b"")
    plain = counter.to_bytes(4, "little") + channel_counter.to_bytes(8, "little")
    assert ivs == [bytes(a ^ b for a, b in zip(plain, mask, strict=True))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.data())
def test_only_the_next_record_opens(messages: list[bytes], data: st.DataObject) -> None:
    sealing, opening = SealingChannel(KEY, label="t"), OpeningChannel(Secret(KEY), label="t")
    records = [sealing.seal(message, bytes([index])) for index, message in enumerate(messages)]
    for index, message in enumerate(messages):
        other = data.draw(st.integers(0, len(messages) - 1))
        if other != index:
            with pytest.raises(VerificationFailed):
                opening.open(records[other], bytes([other]))
        with pytest.raises(VerificationFailed):
            opening.open(records[index], b"another context")
        assert opening.counter == index
        out = bytearray(len(message))
        assert opening.open_into(records[index], bytes([index]), out) == len(message)
        assert out == message
        opening.check_repeat(index + 1, records[index], bytes([index]))
    assert opening.used == sealing.used


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=64), st.data())
def test_any_changed_bit_is_refused(message: bytes, data: st.DataObject) -> None:
    record = bytearray(SealingChannel(KEY, label="t").seal(message, b"aad"))
    record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opening = OpeningChannel(KEY, label="t")
    with pytest.raises(VerificationFailed) as caught:
        opening.open(bytes(record), b"aad")
    assert caught.value.code == "tag-mismatch"
    assert opening.counter == opening.used == 0


@pytest.mark.parametrize("record", [b"", bytes(15), bytes(16)])
def test_records_too_short(record: bytes) -> None:
    with pytest.raises(VerificationFailed):
        OpeningChannel(KEY, label="t").open(record, b"")


@pytest.mark.parametrize("wide", [False, True])
def test_the_receiver_never_wraps_either(wide: bool) -> None:
    opening = OpeningChannel(KEY, label="t", wide=wide)
    opening.counter = (2**64 if wide else 2**32) - 1
    with pytest.raises(ProtocolViolation) as caught:
        opening.open(bytes(20), b"")
    assert caught.value.code == "counter-exhausted"


@pytest.mark.parametrize("number", [-1, 2**64])
def test_channel_counter_is_bounded(number: int) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        SealingChannel(KEY, label="t", channel_counter=number)
    assert caught.value.code == "counter-exhausted"


def test_wide_channels_have_neither_mask_nor_channel_counter() -> None:
    for options in ({"iv_mask": b"m" * 12}, {"channel_counter": 1}):
        with pytest.raises(ProtocolViolation):
            SealingChannel(KEY, label="t", wide=True, **options)  # type: ignore[arg-type]  # a table of keyword arguments


def test_default_budget_is_nvidias() -> None:
    assert aead.DEFAULT_BUDGET == 24_296_003_999
    opening = OpeningChannel(KEY, label="t", budget=2)
    sealing = SealingChannel(KEY, label="t")
    opening.open(sealing.seal(bytes(16), b""), b"")
    with pytest.raises(ProtocolViolation) as caught:
        opening.open(sealing.seal(b"", b""), b"")
    assert caught.value.code == "key-budget-exhausted"


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_counter_is_not_copied(act: Any) -> None:
    with pytest.raises(TypeError):
        act(SealingChannel(KEY, label="t"))


def test_nothing_shows_the_key() -> None:
    channel = SealingChannel(KEY, label="Lce00_h2d_user")
    assert KEY.hex() not in repr(channel) + str(channel) + repr(vars(channel))
    assert str(KEY) not in repr(vars(channel))
