"""The verifier of CPU evidence: every step can fail, every byte counts, nothing emulated passes for hardware."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.platform.pki import make_quoting_keys
from gpu_agent.platform.quoting_enclave import QE_AUTH, _sign
from shared.attestation.cpu_verifier import (
    CHECKS,
    CpuPolicy,
    CpuReference,
    CpuRoots,
    CpuTrust,
    VerifiedCvm,
    verify_cpu_evidence,
)
from shared.attestation.pck import certificate_fingerprint, verify_pck_chain
from shared.attestation.quote import pack_qe_report, pack_quote, parse_qe_report, parse_quote
from shared.canonical import sha256
from shared.claims.manifest import EvidencePolicy
from shared.errors import ConfigurationError, GputError, VerificationFailed
from shared.names import Backend
from tests.attestation.cpu_world import AT, HOLDER_CODE, ORCHESTRATOR_CODE, Machine, evidence, resign

MACHINE = Machine()
DATA = bytes(range(64))
QUOTE = MACHINE.quote(DATA)
RAW = QUOTE.exact
REAL = Path(__file__).parents[3] / "shared" / "evidence" / "tdx"
real_samples = pytest.mark.skipif(not REAL.is_dir(), reason="real evidence samples are not beside this checkout")


def verify(quote: bytes, *, trust: CpuTrust | None = None, data: bytes = DATA, at: float = AT) -> VerifiedCvm:
    trust = trust or MACHINE.trust()
    return verify_cpu_evidence(
        evidence(quote),
        report_data=data,
        role="orchestrator",
        roots=trust.roots,
        reference=trust.reference,
        policy=trust.policy,
        at=at,
        collateral=trust.collateral,
    )


def refused(code: str, quote: bytes = RAW, **options: object) -> VerificationFailed:
    with pytest.raises(VerificationFailed) as caught:
        verify(quote, **options)  # type: ignore[arg-type]  # options of `verify`
    assert caught.value.code == code
    return caught.value


def test_good_evidence_names_its_root_set_and_backend() -> None:
    cvm = verify(RAW)
    assert (cvm.root_set, cvm.backend, cvm.tcb_status) == ("EMULATED", Backend.EMULATED, "not-judged")
    assert (cvm.mr_td, cvm.report_data, cvm.checks) == (ORCHESTRATOR_CODE.hex(), DATA, CHECKS)
    assert len(cvm.platform_id) == 32
    with pytest.raises(TypeError):
        replace(cvm, backend=Backend.HARDWARE, _mint=None)


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


def test_emulated_roots_need_both_the_policy_and_the_switch() -> None:
    for policy, code in (
        (CpuPolicy(roots=("EMULATED",)), "quote-emulated"),
        (CpuPolicy(roots=("INTEL", "AMD"), allow_emulated=True), "quote-root-set"),
        (CpuPolicy.of(EvidencePolicy(roots=("INTEL",)), allow_emulated=True), "quote-root-set"),
        (CpuPolicy.of(EvidencePolicy(roots=("EMULATED", "INTEL")), allow_emulated=False), "quote-emulated"),
    ):
        refused(code, trust=MACHINE.trust(policy=policy))
    verify(RAW, trust=MACHINE.trust(policy=CpuPolicy.of(EvidencePolicy(roots=("EMULATED",)), allow_emulated=True)))


def test_another_installation_is_another_root() -> None:
    other = Machine("other")
    failure = refused("quote-root-unknown", other.quote(DATA).exact)
    assert failure.expected == next(iter(MACHINE.roots.certificates))


def test_chains_must_be_whole_current_and_issued() -> None:
    refused("quote-chain-expired", at=AT - 7200)
    refused("quote-chain-expired", at=AT + 11 * 365 * 86400)
    own, foreign = MACHINE.keys.chain, make_quoting_keys("foreign", AT).chain
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
        (leaf + authority + others[2], "quote-root-unknown"),
    ):
        with pytest.raises(VerificationFailed) as caught:
            verify_pck_chain(chain, MACHINE.roots.certificates, AT)
        assert caught.value.code == code
    verify_pck_chain(own + b"\0", MACHINE.roots.certificates, AT)


def test_qe_report_must_be_vouched_for_and_bind_the_attestation_key() -> None:
    thief = ec.generate_private_key(ec.SECP256R1())
    point = thief.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)[
        1:
    ]
    swapped = replace(QUOTE.signature, attestation_key=point, signature=_sign(thief, QUOTE.signed))
    refused("quote-qe-binding", pack_quote(QUOTE.signed, swapped))
    forged = pack_qe_report(
        mr_enclave=bytes(32),
        mr_signer=bytes(32),
        isv_prod_id=2,
        isv_svn=4,
        report_data=sha256(point + QE_AUTH) + bytes(32),
    )
    theft = replace(swapped, qe_report=parse_qe_report(forged), qe_signature=_sign(thief, forged))
    refused("quote-qe-signature", pack_quote(QUOTE.signed, theft))
    debug = bytearray(QUOTE.signature.qe_report.raw)
    debug[48] |= 0x2
    debuggable = replace(
        QUOTE.signature, qe_report=parse_qe_report(bytes(debug)), qe_signature=_sign(MACHINE.pck(), bytes(debug))
    )
    refused("quote-qe-debug", pack_quote(QUOTE.signed, debuggable))
    refused("quote-signature", resign(QUOTE, thief, QUOTE.body))


@pytest.mark.parametrize(
    ("bit", "code"), [(0, "cvm-debug"), *((bit, "cvm-attributes") for bit in (1, 4, 6, 8, 17, 23, 29, 32, 61))]
)
def test_refused_attribute_bits(bit: int, code: str) -> None:
    attributes = (1 << 28 | 1 << bit).to_bytes(8, "little")
    refused(code, MACHINE.requote(QUOTE, td_attributes=attributes))


@pytest.mark.parametrize("bit", [16, 18, 22, 27, 30, 31, 62, 63])
def test_accepted_attribute_bits(bit: int) -> None:
    verify(MACHINE.requote(QUOTE, td_attributes=(1 << 28 | 1 << bit).to_bytes(8, "little")))


def test_sept_ve_disable_and_xfam_are_required() -> None:
    refused("cvm-sept-ve", MACHINE.requote(QUOTE, td_attributes=bytes(8)))
    refused("cvm-xfam", MACHINE.requote(QUOTE, xfam=(0x1).to_bytes(8, "little")))
    refused("cvm-xfam", MACHINE.requote(QUOTE, xfam=(0x3 | 1 << 40).to_bytes(8, "little")))


def test_report_data_must_be_exactly_the_expected() -> None:
    refused("quote-report-data", data=bytes(64))
    refused("quote-report-data", data=DATA[:63] + b"\0")
    with pytest.raises(GputError):
        verify(RAW, data=DATA[:32])


def test_measurements_must_match_as_a_whole() -> None:
    refused("cvm-measurement", MACHINE.requote(QUOTE, mr_td=HOLDER_CODE))
    refused("cvm-measurement", MACHINE.quote(DATA, "holder-north").exact)
    empty = CpuReference.load(b'{"cvms": {}}')
    assert (
        refused("cvm-measurement", trust=MACHINE.trust(reference=empty)).expected == "no reference value is configured"
    )
    profiles = [
        {"mr_td": ORCHESTRATOR_CODE.hex(), "rtmr0": "11" * 48},
        {"mr_td": HOLDER_CODE.hex(), "rtmr0": "00" * 48},
    ]
    mixed = CpuReference.load(json.dumps({"cvms": {"orchestrator": profiles}}).encode())
    refused("cvm-measurement", trust=MACHINE.trust(reference=mixed))
    verify(MACHINE.requote(QUOTE, rtmr0=b"\x11" * 48), trust=MACHINE.trust(reference=mixed))


def test_agreed_measurements_replace_the_reference_list() -> None:
    agreed = replace(MACHINE.policy, measurements=(HOLDER_CODE.hex(),))
    refused("cvm-measurement", trust=MACHINE.trust(policy=agreed))
    verify(MACHINE.requote(QUOTE, mr_td=HOLDER_CODE), trust=MACHINE.trust(policy=agreed))


def test_platform_allow_list() -> None:
    here = verify(RAW).platform_id
    verify(RAW, trust=MACHINE.trust(policy=replace(MACHINE.policy, platforms=frozenset({here}))))
    refused("cvm-platform", trust=MACHINE.trust(policy=replace(MACHINE.policy, platforms=frozenset({"00" * 16}))))


def test_collateral_check_is_asked_and_obeyed() -> None:
    seen: list[tuple[bytes, bytes, float]] = []

    def judge(quote: bytes, endorsements: bytes, at: float) -> str:
        seen.append((quote, endorsements, at))
        return "UpToDate"

    assert verify(RAW + bytes(70), trust=MACHINE.trust(collateral=judge)).tcb_status == "UpToDate"
    assert seen == [(RAW, b"", AT)]

    def revoked(_quote: bytes, _endorsements: bytes, _at: float) -> str:
        raise VerificationFailed("revoked", code="collateral-revoked")

    refused("collateral-revoked", trust=MACHINE.trust(collateral=revoked))


def test_roots_are_emulated_or_known() -> None:
    with pytest.raises(ConfigurationError):
        CpuRoots.load(b"")
    for bad in (b'{"cvms": {"somebody": {"mr_td": "00"}}}', b"{}", b"[]", b"{"):
        with pytest.raises(ConfigurationError):
            CpuReference.load(bad)


@real_samples
def test_real_quotes_verify_up_to_collateral_and_refuse_as_published() -> None:
    def real(name: str, *, judged: bool = True) -> VerifiedCvm:
        raw = (REAL / "quotes" / name).read_bytes()
        body = parse_quote(raw).body
        policy = CpuPolicy(roots=("INTEL",), measurements=(body.mr_td.hex(),))
        trust = CpuTrust(roots, CpuReference.load(b'{"cvms": {}}'), policy, (lambda *_: "UpToDate") if judged else None)
        return verify(raw, trust=trust, data=body.report_data, at=1_780_000_000.0)

    root = x509.load_der_x509_certificate((REAL / "roots" / "intel-sgx-root-ca.der").read_bytes())
    roots = CpuRoots.load(root.public_bytes(serialization.Encoding.PEM))
    for name in ("tdx-v4-phala-b0c06f.bin", "tdx-v5-gotdx-90c06f.bin", "tdx-v4-gcp-cos113-00806f05.bin"):
        cvm = real(name)
        assert (cvm.root_set, cvm.backend) == ("INTEL", Backend.HARDWARE)
        with pytest.raises(VerificationFailed) as caught:
            real(name, judged=False)
        assert caught.value.code == "collateral-missing"
    for name, code in (
        ("tdx-v4-debug-50806f.bin", "cvm-debug"),
        ("tdx-v4-azure-00806f05-no-sept-ve-disable.bin", "cvm-sept-ve"),
        ("tdx-v5-alibaba-servicetd.bin", "cvm-service-td"),
        ("foreign-emulator-v4.bin", "quote-root-unknown"),
    ):
        with pytest.raises(VerificationFailed) as caught:
            real(name)
        assert caught.value.code == code
    # The emulated machine is refused under Intel's root as well.
    refused("quote-root-unknown", trust=MACHINE.trust(roots=roots))


@real_samples
def test_quotes_of_an_independent_emulator_are_read_the_same_way() -> None:
    """Made and accepted by other code (a published verifier): our verifier agrees once their root is trusted by hand."""
    root = x509.load_der_x509_certificate((REAL / "roots" / "foreign-emulator-root.der").read_bytes())
    name = certificate_fingerprint(root)
    with pytest.raises(ConfigurationError):
        CpuRoots.load(root.public_bytes(serialization.Encoding.PEM))
    at = root.not_valid_before_utc.timestamp() + 30 * 86400
    for file, code in (
        ("foreign-emulator-v4.bin", None),
        ("foreign-emulator-v5-td10.bin", None),
        ("foreign-emulator-v5-td15.bin", None),
        ("foreign-emulator-v4-debug.bin", "cvm-debug"),
    ):
        raw = (REAL / "quotes" / file).read_bytes()
        body = parse_quote(raw).body
        policy = CpuPolicy(roots=("EMULATED",), allow_emulated=True, measurements=(body.mr_td.hex(),))
        trust = MACHINE.trust(roots=CpuRoots({name: root}, {name: "EMULATED"}), policy=policy)
        if code is None:
            assert verify(raw, trust=trust, data=body.report_data, at=at).backend is Backend.EMULATED
        else:
            refused(code, raw, trust=trust, data=body.report_data, at=at)
