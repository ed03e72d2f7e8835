"""Emulated SEV-SNP evidence of every product and both kinds of leaf is believed; nothing that was altered in any place is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.results import CheckStatus
from shared.attestation.snp_examination import P384_ORDER
from shared.attestation.snp_verifier import (
    ExaminedSnp,
    Expectation,
    SnpEndorsements,
    SnpPolicy,
    VerifiedSnp,
    examine_snp_evidence,
    verify_snp_evidence,
)
from shared.claims.snp_rules import PRODUCTS
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend
from shared.wire.visit import Evidence
from tests.attestation.snp_world import (
    AGREED,
    AT,
    CHIP,
    CPUID,
    REPORT_DATA,
    TCB,
    Chip,
    b64,
    body,
    good_chip,
    platform,
    signed,
)

VLEK_BITS = 1 << 2


def verified(evidence: Evidence, **changes: Any) -> VerifiedSnp:
    values = {
        "report_data": REPORT_DATA,
        "role": "data_holder",
        "trust": platform().trust(),
        "policy": AGREED,
        "at": AT,
    }
    return verify_snp_evidence(evidence, **{**values, **changes})


def report_of(chip: Chip, product: str = "Milan", **changes: Any) -> bytes:
    return signed(body(product, **changes), chip.key)


def refusal(report: bytes, chip: Chip | None = None, kind: str = "VCEK", **changes: Any) -> str:
    with pytest.raises(VerificationFailed) as caught:
        verified(platform().evidence(report, (chip or good_chip()).leaf, kind), **changes)
    assert caught.value.detail
    return caught.value.code


def examined(report: bytes, leaf: bytes) -> ExaminedSnp:
    return examine_snp_evidence(report, SnpEndorsements((leaf,)), trust=platform().trust(), agreed=AGREED, at=AT)


# ---------------------------------------------------------------- believed


@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_vcek_of_every_product(product: str, version: int) -> None:
    chip = good_chip(product)
    guest = verified(platform().evidence(report_of(chip, product, version=version), chip.leaf))
    assert (guest.product, guest.root_set, guest.backend) == (product, "EMULATED", Backend.EMULATED)
    assert (guest.platform_id, guest.csp_id) == (CHIP[product].hex(), "")
    assert {"signature", "chip-id", "measurements", "report-data", "root-set"} <= set(guest.checks)
    assert "revocation" not in guest.checks


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("masked", [True, False])
def test_a_vlek_of_every_product(product: str, masked: bool) -> None:
    chip = good_chip(product, "VLEK")
    chip_id = bytes(64) if masked else CHIP[product]
    report = report_of(chip, product, key_info=VLEK_BITS, chip_id=chip_id, vmpl=1)
    guest = verified(platform().evidence(report, chip.leaf, "VLEK"))
    assert (guest.csp_id, guest.vmpl) == ("CN=cloud.test.x", 1)
    assert guest.platform_id == ("" if masked else CHIP[product].hex())


def test_a_masked_chip_is_named_by_its_vcek() -> None:
    guest = verified(platform().evidence(report_of(good_chip(), chip_id=bytes(64), key_info=2), good_chip().leaf))
    assert guest.platform_id == CHIP["Milan"].hex()


def test_a_leaf_with_a_wrapped_hwid_and_pem_certificates_count_too() -> None:
    chip = platform().chip(extensions={"4": b"\x04\x40" + CHIP["Milan"]})
    verified(platform().evidence(report_of(chip), chip.leaf))
    pem = b"-----BEGIN CERTIFICATE-----\n" + b64(chip.leaf).encode() + b"\n-----END CERTIFICATE-----\n"
    verified(platform().evidence(report_of(chip), pem))


def test_only_the_verifier_makes_the_verified_type() -> None:
    guest = verified(platform().evidence(report_of(good_chip()), good_chip().leaf))
    with pytest.raises(TypeError):
        replace(guest, measurement="00" * 48)
    with pytest.raises(TypeError):
        VerifiedSnp(**{name: getattr(guest, name) for name in VerifiedSnp.__dataclass_fields__ if name != "_mint"})


# ----------------------------------------------------------------- refused


@pytest.mark.parametrize("at", [*range(0, 0x2A0, 7), 0x29F])
def test_any_changed_byte_of_the_signed_part_is_found(at: int) -> None:
    report = report_of(good_chip())
    changed = report[:at] + bytes([report[at] ^ 0x01]) + report[at + 1 :]
    found = examined(changed, good_chip().leaf).examination
    against = {check.name for check in found if check.status is CheckStatus.FAIL}
    assert against & {"layout", "signature"}
    with pytest.raises(VerificationFailed):
        verified(platform().evidence(changed, good_chip().leaf))


@pytest.mark.parametrize("at", [0x2A0, 0x2CF, 0x2E8, 0x317])
def test_any_changed_byte_of_r_and_s_is_found(at: int) -> None:
    report = report_of(good_chip())
    changed = report[:at] + bytes([report[at] ^ 0x01]) + report[at + 1 :]
    assert refusal(changed) in ("snp-signature", "snp-signature-range")


@pytest.mark.parametrize("at", [0x2A0, 0x2E8])
@pytest.mark.parametrize("number", [0, P384_ORDER, P384_ORDER + 1, (1 << 576) - 1, 1 << 384])
def test_r_and_s_lie_in_their_range_and_their_padding_is_zero(at: int, number: int) -> None:
    report = report_of(good_chip())
    assert refusal(report[:at] + number.to_bytes(72, "little") + report[at + 72 :]) == "snp-signature-range"
    padded = report[: at + 48] + b"\x01" + report[at + 49 :]
    assert refusal(padded) == "snp-signature-range"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"policy": 0xB0000}, "cvm-debug"),
        ({"policy": 0x3001F | 1 << 18}, "snp-guest-policy"),
        ({"policy": 0x3001F | 1 << 21}, "snp-guest-policy"),
        ({"vmpl": 2}, "snp-vmpl"),
        ({"vmpl": 3}, "snp-vmpl"),
        ({"key_info": VLEK_BITS}, "snp-signing-key"),
        ({"key_info": 7 << 2}, "snp-signing-key"),
        ({"tcb": bytes([3, 0, 0, 0, 0, 0, 24, 219])}, "snp-tcb"),
        ({"tcb": bytes([4, 0, 0, 0, 0, 0, 24, 220])}, "snp-tcb"),
        ({"at": {0x180: TCB["Turin"]}}, "malformed-snp-report"),
        ({"at": {0x38: bytes([4, 0, 1, 0, 0, 0, 24, 219])}}, "malformed-snp-report"),
        ({"chip_id": bytes(64)}, "snp-chip-id"),
        ({"chip_id": CHIP["Genoa"]}, "snp-chip-id"),
        ({"chip_id": CHIP["Genoa"], "key_info": 2}, "snp-chip-id"),
        ({"cpuid": CPUID["Genoa"]}, "snp-product"),
        ({"cpuid": (0x1A, 0x50, 0)}, "snp-product"),
        ({"report_data": bytes(64)}, "quote-report-data"),
        ({"measurement": bytes(48)}, "cvm-measurement"),
    ],
)  # fmt: skip
def test_a_genuinely_signed_report_of_another_guest_or_machine(changes: dict[str, Any], code: str) -> None:
    assert refusal(report_of(good_chip(), **changes)) == code


def test_expired_and_not_yet_valid_are_said_as_such() -> None:
    for start, end in ((-20, -1), (1, 20)):
        chip = platform().chip(start=start, end=end)
        assert refusal(report_of(chip), chip) == "snp-chain-expired"
        found = examined(report_of(chip), chip.leaf).examination
        assert found.find("validity").status is CheckStatus.EXPIRED
        assert found.find("signature").status is CheckStatus.PASS


def test_a_swapped_leaf_of_the_same_platform() -> None:
    other = platform().chip()
    assert refusal(report_of(good_chip()), other) == "snp-signature"


def test_the_kind_of_leaf_must_be_the_reports() -> None:
    vlek = good_chip("Milan", "VLEK")
    assert refusal(report_of(vlek), vlek, "VLEK") == "snp-signing-key"


def test_missing_certificates_leave_the_checks_open_and_refuse() -> None:
    found = examine_snp_evidence(
        report_of(good_chip()), SnpEndorsements(), trust=platform().trust(), agreed=AGREED,
        expected=Expectation(REPORT_DATA), at=AT,
    ).examination  # fmt: skip
    assert found.find("leaf").status is CheckStatus.NOT_CHECKED
    assert found.find("leaf").remedy
    assert found.find("signature").status is CheckStatus.NOT_CHECKED
    assert found.find("report-data").status is CheckStatus.PASS
    evidence = Evidence(kind="snp-report", quote=b64(report_of(good_chip())))
    with pytest.raises(VerificationFailed) as caught:
        verified(evidence)
    assert caught.value.code == "snp-leaf-missing"


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (CpuPolicy(("AMD", "INTEL"), allow_emulated=True), "snp-root-set"),
        (CpuPolicy(("EMULATED",)), "snp-emulated"),
        (CpuPolicy(("EMULATED",), True, platforms=frozenset({"00" * 64})), "cvm-platform"),
        (CpuPolicy(("EMULATED",), True, measurements=("ab" * 48,)), "cvm-measurement"),
    ],
)
def test_the_agreed_policy_decides(policy: CpuPolicy, code: str) -> None:
    assert refusal(report_of(good_chip()), policy=policy) == code


def test_another_role_or_no_profile_at_all_accepts_nothing() -> None:
    trust = platform().trust()
    assert refusal(report_of(good_chip()), trust=replace(trust, profiles={})) == "cvm-measurement"
    only = {"orchestrator": trust.profiles["orchestrator"]}
    assert refusal(report_of(good_chip()), trust=replace(trust, profiles=only)) == "cvm-measurement"


def test_a_tdx_quote_under_this_name_is_no_report_and_bad_base64_no_evidence() -> None:
    with pytest.raises(VerificationFailed) as caught:
        verified(Evidence(kind="snp-report", quote=b64(b"\x04\x00\x02\x00" + bytes(4000))))
    assert caught.value.code == "malformed-snp-report"
    for changes in ({"quote": "A==="}, {"endorsements": "A==="}):
        evidence = platform().evidence(report_of(good_chip()), good_chip().leaf).model_copy(update=changes)
        with pytest.raises(BadRequest):
            verified(evidence)


def test_a_policy_that_wants_a_revocation_list_refuses_without_one() -> None:
    trust = platform().trust(SnpPolicy(require_crl=True))
    assert refusal(report_of(good_chip()), trust=trust) == "snp-no-crl"
