"""The SEV-SNP report's layout: every field where the specification puts it, and no lax form. Also Azure's blob around it."""

from __future__ import annotations

import struct

import pytest

from shared.attestation.azure_hcl import HEADER, PART, parse_hcl
from shared.attestation.cpu_claims import report_claims
from shared.attestation.snp_report import GuestPolicy, SigningKey, Tcb, parse_snp_report, parse_tcb, product_of
from shared.canonical import sha256
from shared.errors import BadRequest
from tests.attestation.snp_world import CHIP, MEASUREMENT, REPORT_DATA, TCB, body, good_chip, signed

RAW = signed(body(key_info=0, at={0x1E8: bytes([29, 55, 1, 0, 28, 54, 2, 0])}), good_chip().key)


def altered(raw: bytes, at: int, value: bytes) -> bytes:
    return raw[:at] + value + raw[at + len(value) :]


def test_fields_are_where_they_belong() -> None:
    report = parse_snp_report(RAW)
    assert (report.version, report.guest_svn, report.vmpl) == (3, 7, 0)
    assert report.policy & GuestPolicy.SMT
    assert not report.policy & GuestPolicy.DEBUG
    assert (report.report_data, report.measurement, report.chip_id) == (REPORT_DATA, MEASUREMENT, CHIP["Milan"])
    assert (report.current_firmware, report.committed_firmware) == ((1, 55, 29), (2, 54, 28))
    assert (report.signing_key, report.chip_masked, report.author_key_enabled) == (SigningKey.VCEK, False, False)
    assert (report.product, report.mitigations) == ("Milan", None)
    assert (report.signed, report.r + report.s) == (RAW[:0x2A0], RAW[0x2A0:0x330])
    flags = parse_snp_report(altered(RAW, 0x48, b"\x07"))
    assert (flags.signing_key, flags.chip_masked, flags.author_key_enabled) == (SigningKey.VLEK, True, True)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_versions_differ_in_what_is_reserved(version: int) -> None:
    raw = signed(body(version=version), good_chip().key)
    report = parse_snp_report(raw)
    assert (report.cpuid is None) == (version < 3)
    with_cpuid, with_vectors = altered(raw, 0x188, b"\x19"), altered(raw, 0x1F8, b"\x01" * 16)
    for changed, allowed in ((with_cpuid, version >= 3), (with_vectors, version >= 5)):
        if allowed:
            parse_snp_report(changed)
        else:
            with pytest.raises(BadRequest):
                parse_snp_report(changed)
    assert (parse_snp_report(with_vectors).mitigations is not None) if version == 5 else report.mitigations is None


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0x000, b"\x01"), (0x000, b"\x06"), (0x003, b"\x01"),  # versions
        (0x034, b"\x00"), (0x034, b"\x02"),  # signature algorithm
        (0x030, b"\x04"),  # VMPL
        (0x00A, b"\x00"), (0x00B, b"\x04"), (0x00F, b"\x80"),  # guest policy: bit 17 must be set, 26 and above clear
        (0x048, b"\x08"), (0x048, b"\x18"), (0x048, b"\x20"), (0x04C, b"\x01"),  # key info
        (0x18B, b"\x01"), (0x19F, b"\x01"), (0x1EB, b"\x01"), (0x1EF, b"\x01"), (0x1F8, b"\x01"), (0x29F, b"\x01"),
        (0x330, b"\x01"), (0x49F, b"\x01"),  # behind the signature
    ],
)  # fmt: skip
def test_what_is_not_as_published_is_refused(at: int, value: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_snp_report(altered(RAW, at, value))
    assert caught.value.code == "malformed-snp-report"


@pytest.mark.parametrize("raw", [b"", RAW[:-1], RAW + b"\0", RAW[1:], RAW * 2])
def test_only_1184_bytes_are_a_report(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_snp_report(raw)


def test_the_two_tcb_layouts() -> None:
    assert parse_tcb(TCB["Milan"], "Milan") == Tcb(bootloader=4, tee=0, snp=24, microcode=219)
    assert parse_tcb(TCB["Turin"], "Turin") == Tcb(fmc=1, bootloader=2, tee=0, snp=3, microcode=9)
    assert str(parse_tcb(TCB["Turin"], "Turin")).startswith("fmc 1, bootloader 2")
    for raw, product in ((bytes([0, 0, 1, 0, 0, 0, 0, 0]), "Genoa"), (bytes([0, 0, 0, 0, 0, 0, 1, 0]), "Turin")):
        with pytest.raises(BadRequest):
            parse_tcb(raw, product)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "model", "product"),
    [(0x19, 0x01, "Milan"), (0x19, 0x11, "Genoa"), (0x19, 0xA0, "Genoa"), (0x1A, 0x02, "Turin"), (0x1A, 0x50, None),
     (0x19, 0x20, None), (0x17, 0x31, None)],
)  # fmt: skip
def test_products_by_cpuid(family: int, model: int, product: str | None) -> None:
    assert product_of(family, model) == product


# ------------------------------------------------------------------ Azure


def hcl(variable: bytes = b'{"keys":[]}', kind: int = 2, **changes: int) -> bytes:
    report = signed(body(report_data=sha256(variable).ljust(64, b"\0")), good_chip().key)
    size = PART.size + len(variable) + changes.get("part", 0)
    whole = HEADER.size + len(report) + PART.size + len(variable) + changes.get("whole", 0)
    head = HEADER.pack(b"HCLA", changes.get("version", 2), whole, 2, changes.get("status", 0), bytes(12))
    part = PART.pack(size, 1, kind, changes.get("hash", 1), len(variable) + changes.get("length", 0))
    return head + report + part + variable + bytes(64)


def test_an_azure_blob_holds_report_and_variable_data() -> None:
    blob = parse_hcl(hcl())
    assert (blob.kind, blob.variable_data) == ("snp", b'{"keys":[]}')
    blob.check_variable_data()
    assert parse_snp_report(blob.report).measurement == MEASUREMENT


@pytest.mark.parametrize(
    "raw",
    [
        b"", hcl()[:1240], b"HCLB" + hcl()[4:], hcl(version=3), hcl(status=1), hcl(kind=3), hcl(hash=2), hcl(part=1), hcl(whole=1),
        hcl(length=1), hcl(length=1, part=1, whole=1, version=9), hcl()[:-1] + b"x", hcl() + bytes(16 * 1024),
        altered(hcl(kind=4), 0x20 + 1100, b"x"),  # a TDREPORT has 1024 bytes
        altered(hcl(), 0x4D0, struct.pack("<I", 1 << 31)),
    ],
)  # fmt: skip
def test_a_blob_that_does_not_fit_together_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_hcl(raw)
    assert caught.value.code == "malformed-hcl"


def test_claims_of_a_report_leave_out_levels_that_the_layout_has_no_meaning_for() -> None:
    """Whoever examines evidence is told by the check of the levels; the claims only describe."""
    claims = report_claims(parse_snp_report(altered(RAW, 0x182, b"\x01")))
    assert claims["snp.reported_tcb"] == altered(RAW, 0x182, b"\x01")[0x180:0x188].hex()
    assert not [name for name in claims if name.startswith("snp.reported_tcb_")]
    assert report_claims(parse_snp_report(RAW))["snp.reported_tcb_snp"] == TCB["Milan"][6]
