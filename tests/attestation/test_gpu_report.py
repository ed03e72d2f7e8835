"""The report's layout: round trip of any content, refusal of every malformed one. Knows no key."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.attestation.gpu_report import ORDER_580, Opaque, parse_report, unsigned_report
from shared.errors import BadRequest
from shared.wire.spdm import get_measurements

NONCE = bytes(range(32))
FIELDS: dict[int, bytes] = {
    6: struct.pack("<II", 0x96009F00, 1), 14: bytes(4), 15: b"882\0\0\0\0\0\0", 16: b"0\0\0\0\0", 17: b"1010\0", 18: b"0200\0",
    19: bytes(2), 3: b"580.159.03\0", 4: bytes.fromhex("8001000000000000"), 12: bytes(256), 13: bytes(4), 11: b"\x55",
    20: b"f" * 48, 21: b"\x55", 34: b"\1\0", 36: b"\0\0",
}  # fmt: skip
OPAQUE_AT = 37 + 8 + 3520 + 32
digests = st.binary(min_size=48, max_size=48)


def build(fields: dict[int, bytes] = FIELDS, values: list[bytes] | None = None) -> bytes:
    values = [bytes([i]) * 48 for i in range(64)] if values is None else values
    return unsigned_report(get_measurements(NONCE), values, b"r" * 32, fields) + b"s" * 96


def test_580_form() -> None:
    assert tuple(FIELDS) == ORDER_580
    assert len(build()) == 4130
    report = parse_report(build())
    assert (report.driver_version, report.vbios_version, report.mode) == ("580.159.03", "96.00.9F.00.01", "spt")
    assert (report.nonce, report.responder_nonce, report.fwid) == (NONCE, b"r" * 32, b"f" * 48)
    assert report.signed + report.signature == build()


@settings(max_examples=40, deadline=None)
@given(st.lists(digests, min_size=64, max_size=64), digests, st.binary(min_size=256, max_size=256))
def test_round_trip(values: list[bytes], fwid: bytes, counts: bytes) -> None:
    report = parse_report(build(FIELDS | {20: fwid, 12: counts}, values))
    assert report.measurements == tuple(values)
    assert report.opaque == FIELDS | {20: fwid, 12: counts}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, OPAQUE_AT + 400), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_seen(at: int, change: int) -> None:
    good = build()
    bad = bytearray(good)
    bad[at] ^= change
    try:
        report = parse_report(bytes(bad))
    except BadRequest:
        return
    original = parse_report(good)
    assert (report.signed, report.signature) != (original.signed, original.signature)
    assert report != original


@given(st.integers(0, 4129))
def test_truncation_is_refused(size: int) -> None:
    with pytest.raises(BadRequest):
        parse_report(build()[:size])


def without(kind: int) -> dict[int, bytes]:
    return {key: value for key, value in FIELDS.items() if key != kind}


@pytest.mark.parametrize(
    "data",
    [
        build() + b"\0",
        bytes(0x2001),
        build(values=[bytes(48)] * 31),
        build(values=[bytes(48)] * 65),
        build(FIELDS | {37: b"x"}),
        build(FIELDS | {255: b"x"}),
        build(FIELDS | {20: b"f" * 47}),
        build(FIELDS | {12: bytes(104)}),
        build(FIELDS | {34: b"\2\0"}),
        build(FIELDS | {11: b"\x00"}),
        build(FIELDS | {3: b"../../root\0"}),
        build(FIELDS | {3: b"580.159.03"}),
        *(build(without(kind)) for kind in (3, 4, 6, 11)),
        build().replace(struct.pack("<HH", 36, 2), struct.pack("<HH", 34, 2)),  # a repeated field
        build()[: OPAQUE_AT + 2 + 4] + build()[OPAQUE_AT + 2 + 4 + 1 :],
        build().replace(bytes([2]) + b"\1\x33\0", bytes([1]) + b"\1\x33\0"),  # block index twice
        b"\x12" + build()[1:],
        build()[:37] + b"\x12" + build()[38:],
        build()[:3] + b"\x01" + build()[4:],
    ],
)  # fmt: skip
def test_malformed(data: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_report(data)
    assert caught.value.code in ("malformed-gpu-report", "malformed-spdm")


def test_old_firmware_states_no_fwid_and_no_flag() -> None:
    report = parse_report(build({key: value for key, value in FIELDS.items() if key not in (20, 21, 34, 36)}))
    assert (report.fwid, report.mode) == (None, "spt")
    assert Opaque.FWID not in report.opaque
