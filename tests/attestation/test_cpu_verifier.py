"""The verifier of CPU evidence: every step can fail, every byte counts, nothing emulated passes for hardware."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.platform.collateral_maker import sign_raw
from gpu_agent.platform.machine import QE_AUTH, QE_MR_ENCLAVE, QE_MR_SIGNER, QE_PRODUCT, QE_SVN
from gpu_agent.platform.pki import make_maker
from gpu_agent.platform.quote_packing import pack_qe_report, pack_quote
from shared.attestation.cpu_verifier import (
    CHECKS,
    CpuPolicy,
    CpuReference,
    CpuRoots,
    CpuTrust,
    VerifiedCvm,
    examine_cpu_evidence,
    verify_cpu_evidence,
)
from shared.attestation.pck import read_pck_chain
from shared.attestation.quote import parse_qe_report
from shared.attestation.results import CheckStatus, Examination
from shared.canonical import sha256
from shared.claims.manifest import EvidencePolicy
from shared.errors import ConfigurationError, GputError, VerificationFailed
from shared.names import Backend
from tests.attestation.cpu_world import AT, HOLDER_CODE, ORCHESTRATOR_CODE, Machine, evidence, resign

MACHINE = Machine()
DATA = bytes(range(64))
QUOTE = MACHINE.quote(DATA)
RAW = QUOTE.exact
YEAR = 365 * 86400


def verify(quote: bytes, *, trust: CpuTrust | None = None, data: bytes = DATA, at: float = AT) -> VerifiedCvm:
    trust = trust or MACHINE.trust()
    return verify_cpu_evidence(
        evidence(quote), report_data=data, role="orchestrator", roots=trust.roots, reference=trust.reference,
        policy=trust.policy, at=at, collateral=trust.collateral,
    )  # fmt: skip


def examine(quote: bytes, *, trust: CpuTrust | None = None, at: float = AT, role: bool = True) -> Examination:
    trust = trust or MACHINE.trust()
    return examine_cpu_evidence(
        evidence(quote), report_data=DATA if role else None, role="orchestrator" if role else None, roots=trust.roots,
        reference=trust.reference, policy=trust.policy, at=at, collateral=trust.collateral,
    ).checks  # fmt: skip


def refused(code: str, quote: bytes = RAW, **options: object) -> VerificationFailed:
    with pytest.raises(VerificationFailed) as caught:
        verify(quote, **options)  # type: ignore[arg-type]  # options of `verify`
    assert caught.value.code == code
    return caught.value


def failed(quote: bytes, **options: object) -> dict[str, str]:
    """Checks that were not passed, with their codes."""
    return {c.name: c.code for c in examine(quote, **options) if c.status is not CheckStatus.PASS}  # type: ignore[arg-type]


def test_good_evidence_names_its_root_set_and_backend() -> None:
    cvm = verify(RAW)
    assert (cvm.root_set, cvm.backend, cvm.tcb_status) == ("EMULATED", Backend.EMULATED, "UpToDate")
    assert (cvm.advisories, cvm.evaluation, cvm.events) == ((), 1, ())
    assert (cvm.mr_td, cvm.report_data, cvm.checks) == (ORCHESTRATOR_CODE.hex(), DATA, CHECKS)
    assert len(cvm.platform_id) == 32
    with pytest.raises(TypeError):
        replace(cvm, backend=Backend.HARDWARE)


@pytest.mark.parametrize("version", [4, 5])
def test_both_versions_of_the_enclave_pass_every_check(version: int) -> None:
    machine = Machine(f"version {version}", version)
    assert machine.quote(DATA).version == version
    assert not failed(machine.raw(DATA), trust=machine.trust())


def test_every_byte_of_the_quote_counts() -> None:
    """Every third one, with another bit each; only the text armour around the signed certificates has slack."""
    armour = RAW.index(b"-----BEGIN")
    for position in range(0, len(RAW), 3):
        changed = bytearray(RAW)
        changed[position] ^= 1 << position % 7
        if position >= armour and not chr(RAW[position]).isalnum():
            continue
        with pytest.raises(GputError):
            verify(bytes(changed))


REGIONS = {
    "header reserved": (10, "quote-signature"),
    "user data": (30, "quote-signature"),
    "report data": (48 + 530, "quote-signature"),
    "MRTD": (48 + 140, "quote-signature"),
    "RTMR3": (48 + 480, "quote-signature"),
    "quote signature": (636 + 5, "quote-signature"),
    "QE MRENCLAVE": (636 + 134 + 70, "qe-report"),
    "QE report signature": (636 + 134 + 384 + 3, "qe-report"),
    "QE authentication data": (636 + 134 + 450 + 1, "qe-report"),
}


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_region_fails_the_check_that_covers_it(region: str) -> None:
    position, name = REGIONS[region]
    changed = bytearray(RAW)
    changed[position] ^= 0x10
    assert name in failed(bytes(changed))
    assert failed(bytes(changed))["engine"] == "engine-not-asked", "the second verifier is asked only about the rest"


def test_a_flipped_attestation_key_breaks_both_signatures_around_it() -> None:
    changed = bytearray(RAW)
    changed[636 + 70] ^= 1
    assert {"qe-report": "quote-qe-binding", "quote-signature": "quote-signature"}.items() <= failed(
        bytes(changed)
    ).items()


def test_statuses_are_independent() -> None:
    """An expired chain hides nothing else, and one wrong bit does not make a forgery of the rest."""
    late = {c.name: c.status for c in examine(RAW, at=AT + 11 * YEAR)}
    assert late["certificate-chain"] is late["collateral-time"] is CheckStatus.EXPIRED
    assert late["quote-signature"] is late["qe-report"] is late["measurements"] is CheckStatus.PASS
    debug = failed(MACHINE.requote(QUOTE, td_attributes=(1 << 28 | 1).to_bytes(8, "little")))
    assert debug == {"td-attributes": "cvm-debug", "engine": "engine-not-asked"}
    assert failed(b"no quote") == {"layout": "malformed-quote"}
    unknown = failed(RAW, role=False)
    assert unknown == {"report-data": "report-data-unknown", "measurements": "role-unknown"}


def test_emulated_roots_need_both_the_policy_and_the_switch() -> None:
    for policy, code in (
        (CpuPolicy(), "quote-root-set"),
        (CpuPolicy(roots=("EMULATED",)), "quote-emulated"),
        (CpuPolicy(roots=("INTEL", "AMD"), allow_emulated=True), "quote-root-set"),
        (CpuPolicy.of(EvidencePolicy(roots=("INTEL",)), allow_emulated=True), "quote-root-set"),
        (CpuPolicy.of(EvidencePolicy(roots=("EMULATED", "INTEL")), allow_emulated=False), "quote-emulated"),
    ):
        refused(code, trust=MACHINE.trust(policy=policy))
    verify(RAW, trust=MACHINE.trust(policy=CpuPolicy.of(EvidencePolicy(roots=("EMULATED",)), allow_emulated=True)))


def test_another_installation_is_another_root() -> None:
    other = Machine("other")
    failure = refused("quote-root-unknown", other.raw(DATA))
    assert failure.expected == next(iter(MACHINE.roots.certificates))
    assert "not from the configured root" in failure.detail


def test_chains_must_be_whole_current_and_issued() -> None:
    refused("quote-chain-expired", at=AT - 7200)
    refused("quote-chain-expired", at=AT + 11 * YEAR)
    own, foreign = MACHINE.keys.chain, make_maker("foreign", AT).machine(AT).chain
    certificates = [part + b"-----END CERTIFICATE-----\n" for part in own.split(b"-----END CERTIFICATE-----\n")[:3]]
    others = [part + b"-----END CERTIFICATE-----\n" for part in foreign.split(b"-----END CERTIFICATE-----\n")[:3]]
    leaf, authority, root = certificates
    for chain, code in (
        (leaf + root, "quote-chain-malformed"),
        (leaf + authority + root + root, "quote-chain-malformed"),
        (b"", "quote-chain-malformed"),
        (others[0] + authority + root, "quote-chain-broken"),
        (others[0] + others[1] + root, "quote-chain-broken"),
        (authority + root + root, "quote-chain-broken"),
        (leaf + leaf + root, "quote-chain-broken"),
        (authority + leaf + root, "quote-chain-broken"),
        (leaf + authority + others[2], "quote-root-unknown"),
    ):
        with pytest.raises(VerificationFailed) as caught:
            read_pck_chain(chain, MACHINE.roots.certificates)
        assert caught.value.code == code
        with pytest.raises(VerificationFailed):
            verify(pack_quote(QUOTE.signed, replace(QUOTE.signature, certification=chain)))
    read_pck_chain(own + b"\0", MACHINE.roots.certificates)


def test_qe_report_must_be_vouched_for_and_bind_the_attestation_key() -> None:
    thief = ec.generate_private_key(ec.SECP256R1())
    point = thief.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)[
        1:
    ]
    swapped = replace(QUOTE.signature, attestation_key=point, signature=sign_raw(thief, QUOTE.signed))
    refused("quote-qe-binding", pack_quote(QUOTE.signed, swapped))
    forged = qe(report_data=sha256(point + QE_AUTH) + bytes(32))
    theft = replace(swapped, qe_report=parse_qe_report(forged), qe_signature=sign_raw(thief, forged))
    refused("quote-qe-signature", pack_quote(QUOTE.signed, theft))
    refused("quote-signature", resign(QUOTE, thief, QUOTE.body))
    trailing = bytearray(QUOTE.signature.qe_report.raw)
    trailing[-1] = 1
    refused("quote-qe-binding", requoted_by(bytes(trailing)))


def qe(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "mr_enclave": QE_MR_ENCLAVE, "mr_signer": QE_MR_SIGNER, "isv_prod_id": QE_PRODUCT, "isv_svn": QE_SVN,
        "report_data": QUOTE.signature.qe_report.report_data,
    }  # fmt: skip
    return pack_qe_report(**{**fields, **changes})  # type: ignore[arg-type]  # fields of a QE report


def requoted_by(report: bytes) -> bytes:
    """The quote under another report of the quoting enclave, signed by the machine's own key."""
    signature = replace(
        QUOTE.signature, qe_report=parse_qe_report(report), qe_signature=sign_raw(MACHINE.pck(), report)
    )
    return pack_quote(QUOTE.signed, signature)


def test_the_quoting_enclave_is_the_one_in_the_qe_identity() -> None:
    debug = bytearray(qe())
    debug[48] |= 0x2
    misc, attributes = bytearray(qe()), bytearray(qe())
    misc[16] = 1
    attributes[50] = 1
    for report, code in (
        (bytes(debug), "quote-qe-debug"),
        (qe(mr_signer=bytes(32)), "quote-qe-identity"),
        (qe(isv_prod_id=QE_PRODUCT + 1), "quote-qe-identity"),
        (bytes(misc), "quote-qe-identity"),
        (bytes(attributes), "quote-qe-identity"),
        (qe(isv_svn=QE_SVN - 2), "tcb-unsupported"),
    ):
        assert failed(requoted_by(report))["qe-identity"] == code
    assert failed(requoted_by(qe(isv_svn=QE_SVN - 1))) == {"tcb-status": "tcb-status"}
    assert not failed(requoted_by(qe(isv_svn=QE_SVN + 1, mr_enclave=bytes(32)))), "a newer build of the same enclave"


def test_report_data_must_be_exactly_the_expected() -> None:
    refused("quote-report-data", data=bytes(64))
    refused("quote-report-data", data=DATA[:63] + b"\0")
    refused("bad-report-data", data=DATA[:32])


def test_measurements_must_match_as_a_whole() -> None:
    refused("cvm-measurement", MACHINE.requote(QUOTE, mr_td=HOLDER_CODE))
    refused("cvm-measurement", MACHINE.raw(DATA, "holder-north"))
    empty = CpuReference.load(b'{"cvms": {}}')
    failure = refused("cvm-measurement", trust=MACHINE.trust(reference=empty))
    assert failure.expected == "no reference value is configured"
    profiles = [
        {"mr_td": ORCHESTRATOR_CODE.hex(), "rtmr0": "11" * 48},
        {"mr_td": HOLDER_CODE.hex(), "rtmr0": "00" * 48},
    ]
    mixed = CpuReference.load(json.dumps({"cvms": {"orchestrator": profiles}}).encode())
    failure = refused("cvm-measured-configuration", trust=MACHINE.trust(reference=mixed))
    assert (failure.expected, "RTMR0" in failure.detail) == ("11" * 48, True)
    verify(MACHINE.requote(QUOTE, rtmr0=b"\x11" * 48), trust=MACHINE.trust(reference=mixed))


def test_agreed_measurements_replace_the_reference_list() -> None:
    agreed = replace(MACHINE.policy, measurements=(HOLDER_CODE.hex(),))
    refused("cvm-measurement", trust=MACHINE.trust(policy=agreed))
    verify(MACHINE.requote(QUOTE, mr_td=HOLDER_CODE), trust=MACHINE.trust(policy=agreed))


def test_roots_are_emulated_or_known() -> None:
    with pytest.raises(ConfigurationError):
        CpuRoots.load(b"")
    for bad in (b'{"cvms": {"somebody": {"mr_td": "00"}}}', b"{}", b"[]", b"{"):
        with pytest.raises(ConfigurationError):
            CpuReference.load(bad)
