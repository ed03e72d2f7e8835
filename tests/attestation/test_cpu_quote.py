"""The quote's layout: our own quotes byte for byte, real ones from Intel machines, and no lax form."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.platform.quote_packing import pack_quote, pack_signed
from shared.attestation.cpu_trust import INTEL_SGX_ROOT
from shared.attestation.pck import certificate_fingerprint, read_pck_chain, sgx_entries
from shared.attestation.quote import BODY_SIZES, MAX_QUOTE_BYTES, parse_quote
from shared.errors import BadRequest, GputError, VerificationFailed
from tests.attestation.cpu_world import Machine

MACHINE = Machine()
QUOTE = MACHINE.quote(b"r" * 64)
RAW = pack_quote(QUOTE.signed, QUOTE.signature)
REAL = Path(__file__).parents[3] / "shared" / "evidence" / "tdx"
real_samples = pytest.mark.skipif(not REAL.is_dir(), reason="real evidence samples are not beside this checkout")


def test_offsets_are_those_of_the_published_layout() -> None:
    assert struct.unpack_from("<HHI", RAW) == (4, 2, 0x81)
    assert RAW[12:28].hex() == "939a7233f79c4ca9940a0db3957f0607"
    assert RAW[48 + 136 : 48 + 184] == QUOTE.body.mr_td
    assert RAW[48 + 520 : 48 + 584] == b"r" * 64 == QUOTE.body.report_data
    assert struct.unpack_from("<I", RAW, 632)[0] == len(RAW) - 636
    assert RAW[:632] == QUOTE.signed
    assert RAW[636 + 128 : 636 + 134] == struct.pack("<HI", 6, len(RAW) - 636 - 134)
    assert RAW[636 + 134 + 320 : 636 + 134 + 384] == QUOTE.signature.qe_report.report_data


def test_zero_padding_is_stripped_and_nothing_else_may_follow() -> None:
    assert parse_quote(RAW + bytes(70)).exact == RAW == parse_quote(RAW).exact
    for tail in (b"\x01", bytes(70) + b"x"):
        with pytest.raises(BadRequest) as caught:
            parse_quote(RAW + tail)
        assert caught.value.code == "malformed-quote"
    with pytest.raises(BadRequest):
        parse_quote(RAW + bytes(MAX_QUOTE_BYTES))


@given(st.integers(0, len(RAW) - 1))
def test_every_truncation_is_refused(length: int) -> None:
    with pytest.raises(BadRequest):
        parse_quote(RAW[:length])


@given(st.binary(max_size=2000))
def test_noise_is_refused_in_the_family(noise: bytes) -> None:
    with pytest.raises(GputError):
        parse_quote(RAW[:636] + noise)
    with pytest.raises(VerificationFailed):
        sgx_entries(b"\x30\x82\xff\xff" + noise)
    with pytest.raises(VerificationFailed):
        read_pck_chain(noise, {})


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"\x03\x00"),
        (0, b"\x05\x00"),
        (2, b"\x03\x00"),
        (4, bytes(4)),
        (12, b"\x00"),
        (632, b"\xff\xff\xff\xff"),
        (636 + 128, b"\x05\x00"),
        (636 + 130, b"\x00\x00\x00\x00"),
        (636 + 134 + 448, b"\xff\xff"),
        (636 + 134 + 450 + 32, b"\x01\x00"),
        (636 + 134 + 450 + 34, b"\xff\xff\xff\xff"),
    ],
)
def test_constants_and_lengths_must_fit(offset: int, value: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_quote(RAW[:offset] + value + RAW[offset + len(value) :])


@pytest.mark.parametrize("body_type", BODY_SIZES)
def test_version_5_names_its_body_by_type_and_size(body_type: int) -> None:
    tail = bytes(range(64)) + bytes(BODY_SIZES[body_type] - BODY_SIZES[3]) if body_type > 2 else b""
    body = replace(QUOTE.body, tail=tail)
    raw = pack_quote(pack_signed(5, body), QUOTE.signature)
    quote = parse_quote(raw)
    assert (quote.version, quote.body_type, quote.body) == (5, body_type, body)
    assert (quote.body.tee_tcb_svn2, quote.body.mr_servicetd) == (tail[:16], tail[16:64])
    assert sum(map(len, quote.body.extension.values())) == BODY_SIZES[body_type] - 648 if body_type == 4 else True
    for other in {1, 2, 3, 4, 5} - {body_type}:
        with pytest.raises(BadRequest):
            parse_quote(raw[:48] + struct.pack("<H", other) + raw[50:])
    for size in (0, BODY_SIZES[body_type] - 1, BODY_SIZES[body_type] + 1, 0xFFFFFFFF):
        with pytest.raises(BadRequest):
            parse_quote(raw[:50] + struct.pack("<I", size) + raw[54:])
    if body_type > 2:
        with pytest.raises(BadRequest):
            pack_signed(4, body)


@pytest.mark.parametrize("length", [0, 31, 33, 4096])
def test_qe_authentication_data_has_its_one_length(length: int) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_quote(pack_quote(QUOTE.signed, replace(QUOTE.signature, qe_auth=bytes(length))))
    assert f"{length} bytes, not 32" in caught.value.detail


@real_samples
def test_real_quotes_parse_and_their_chains_end_at_intel() -> None:
    root = x509.load_der_x509_certificate((REAL / "roots" / "intel-sgx-root-ca.der").read_bytes())
    assert certificate_fingerprint(root) == INTEL_SGX_ROOT
    names = sorted((REAL / "quotes").glob("tdx-*.bin"))
    assert len(names) >= 10
    for path in names:
        quote = parse_quote(path.read_bytes())
        assert quote.version == (5 if "v5" in path.name else 4)
        assert quote.signed.endswith(quote.body.pack())
        pck = read_pck_chain(quote.signature.certification, {INTEL_SGX_ROOT: root})
        family = next((part for part in path.stem.split("-") if len(part) in (6, 8) and part.endswith("6f")), None)
        if family or "00806f05" in path.name:
            assert pck.fmspc.startswith(family or "00806f05")


@real_samples
@settings(deadline=None)
@given(st.data())
def test_real_quotes_break_at_any_truncation(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted((REAL / "quotes").glob("tdx-*.bin"))))
    exact = parse_quote(path.read_bytes()).exact
    with pytest.raises(BadRequest):
        parse_quote(exact[: data.draw(st.integers(0, len(exact) - 1))])
