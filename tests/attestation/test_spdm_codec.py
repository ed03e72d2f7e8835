"""The SPDM codec: whatever is built parses back, whatever is not of the one form is refused, nothing else escapes. Knows no session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import BadRequest
from shared.wire import spdm

exactly = {size: st.binary(min_size=size, max_size=size) for size in (32, 48, 96)}
vendors = st.builds(
    spdm.VendorElement, key=exactly[32], life=st.integers(0, 2**31 - 1), resume=st.one_of(st.just(b""), exactly[48])
)
ids = st.integers(0, 0xFFFF)


@settings(max_examples=60, deadline=None)
@given(ids, exactly[32], exactly[96], vendors)
def test_key_exchange(number: int, random: bytes, point: bytes, vendor: spdm.VendorElement) -> None:
    message = spdm.key_exchange(number, random, point, vendor)
    assert spdm.parse_key_exchange(message) == spdm.KeyExchange(number, random, point, vendor)
    assert message[:4] == bytes([0x11, 0xE4, 0, 0])
    assert message[138:142] == b"FTMD"


@settings(max_examples=60, deadline=None)
@given(ids, exactly[32], exactly[96], exactly[96], exactly[48])
def test_key_exchange_rsp(number: int, random: bytes, point: bytes, signature: bytes, verify: bytes) -> None:
    unsigned = spdm.key_exchange_rsp_unsigned(number, random, point)
    parsed = spdm.parse_key_exchange_rsp(unsigned + signature + verify)
    assert parsed == spdm.KeyExchangeRsp(number, random, point, unsigned, signature, verify)


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=1, max_size=9000), st.integers(1, 5000))
def test_certificate_portions_make_the_chain(chain: bytes, length: int) -> None:
    got = b""
    while len(got) < len(chain):
        offset, _ = spdm.parse_get_certificate(spdm.get_certificate(len(got)))
        portion, remainder = spdm.parse_certificate(spdm.certificate(chain, offset, length))
        assert 0 < len(portion) <= min(length, spdm.CERTIFICATE_PORTION)
        got += portion
        assert remainder == len(chain) - len(got)
    assert got == chain


@settings(max_examples=40, deadline=None)
@given(exactly[48], st.lists(st.binary(min_size=256, max_size=900), min_size=1, max_size=5))
def test_chain_form(root: bytes, bodies: list[bytes]) -> None:
    certificates = [b"\x30\x82" + len(body).to_bytes(2, "big") + body for body in bodies]
    form = spdm.chain_form(root, certificates)
    assert spdm.parse_chain_form(form) == (root, certificates)
    for bad in (form + b"\0", form[:-1], form[:3], bytes([form[0] ^ 1]) + form[1:], form[:2] + b"\1" + form[3:]):
        with pytest.raises(BadRequest):
            spdm.parse_chain_form(bad)


@given(exactly[32])
def test_get_measurements(nonce: bytes) -> None:
    message = spdm.get_measurements(nonce)
    assert len(message) == 37
    assert spdm.parse_get_measurements(message) == nonce


PARSERS: list[Callable[[bytes], Any]] = [
    spdm.parse_get_certificate, spdm.parse_certificate, spdm.parse_key_exchange, spdm.parse_key_exchange_rsp, spdm.parse_finish,
    spdm.parse_get_measurements, spdm.parse_chain_form, spdm.code_of,
]  # fmt: skip
VENDOR = spdm.VendorElement(b"k" * 32, 3, b"r" * 48)
GOOD: list[tuple[Callable[[bytes], Any], bytes]] = [
    (spdm.parse_get_certificate, spdm.get_certificate(0)),
    (spdm.parse_certificate, spdm.certificate(b"c" * 5000, 0, 4096)),
    (spdm.parse_key_exchange, spdm.key_exchange(7, b"n" * 32, b"p" * 96, VENDOR)),
    (spdm.parse_key_exchange_rsp, spdm.key_exchange_rsp_unsigned(7, b"n" * 32, b"p" * 96) + bytes(144)),
    (spdm.parse_finish, spdm.FINISH_HEADER + bytes(48)),
    (spdm.parse_get_measurements, spdm.get_measurements(bytes(32))),
]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(PARSERS), st.binary(max_size=400))
def test_no_bytes_raise_anything_else(parser: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        parser(data)


@pytest.mark.parametrize(("parser", "message"), GOOD, ids=lambda value: getattr(value, "__name__", ""))
def test_every_length_but_its_own(parser: Callable[[bytes], Any], message: bytes) -> None:
    parser(message)
    for bad in (message[:-1], message + b"\0", message[: len(message) // 2], b"", message[:4]):
        with pytest.raises(BadRequest):
            parser(bad)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(GOOD), st.data())
def test_a_changed_byte_changes_the_value_or_is_refused(
    good: tuple[Callable[[bytes], Any], bytes], data: st.DataObject
) -> None:
    parser, message = good
    changed = bytearray(message)
    changed[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        value = parser(bytes(changed))
    except BadRequest:
        return
    # Reserved Param1 and Param2 of a certificate's portion mean nothing and are not read.
    assert value != parser(message) or (parser in (spdm.parse_certificate, spdm.parse_get_certificate))


def test_an_error_message_is_told_as_one() -> None:
    with pytest.raises(BadRequest) as caught:
        spdm.parse_certificate(spdm.error(spdm.UNEXPECTED_REQUEST))
    assert (caught.value.code, caught.value.got) == ("spdm-error", "0x04")


def test_fixed_messages_are_the_published_layouts() -> None:
    assert spdm.GET_VERSION_MESSAGE.hex() == "10840000"
    assert spdm.VERSION_MESSAGE.hex() == "1004000000010011"
    assert len(spdm.GET_CAPABILITIES_MESSAGE) == len(spdm.CAPABILITIES_MESSAGE) == 12
    for message in (spdm.NEGOTIATE_ALGORITHMS_MESSAGE, spdm.ALGORITHMS_MESSAGE):
        assert int.from_bytes(message[4:6], "little") == len(message)
        assert message[2] == 4  # algorithm structures: DHE, AEAD, requester signature, key schedule
