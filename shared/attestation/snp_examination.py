"""What can be found out about SEV-SNP evidence: independent checks of report, leaf, chain and binding. Believes nothing; knows no role.

Steps (reference cpu-tee.md 2.4 and the firmware ABI), each a check of its own. Genuine, here:

     1  layout of every field                      6  revocation, where lists are at hand
     2  leaf: kind, key, AMD's extensions          7  key info names the leaf's kind
     3  chain to a pinned root                     8  report signature by the leaf
     4  validity at the verifier's time            9  the leaf's patch levels are the reported ones
     5  the root's set is one that counts         10  chip id and product are the leaf's

and 11 to 20, whether it is what was wanted, in `snp_appraisal`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509 import CertificateRevocationList

from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.results import CheckStatus, Examination, Recipe
from shared.attestation.root_sets import check_set
from shared.attestation.snp_appraisal import NOTHING_EXPECTED, Expectation, appraise
from shared.attestation.snp_certificates import Leaf, load_certificate, load_crl, read_leaf
from shared.attestation.snp_chain import SnpChain, check_revocation, check_validity, verify_snp_chain
from shared.attestation.snp_report import SigningKey, SnpReport, parse_snp_report, parse_tcb
from shared.attestation.snp_trust import SnpRoots, SnpRootSet, SnpTrust
from shared.errors import VerificationFailed
from shared.wire.snp_certificates import ASK, CRL, VCEK, VLEK, CertificateTable

P384_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
NO_CRL: Final = ("revocation", CheckStatus.NOT_CHECKED)
INSPECTION: Final = (
    NO_CRL,
    ("report-data", CheckStatus.NOT_CHECKED),
    ("measurements", CheckStatus.NOT_CHECKED),
)
"""What may be left open when a report is judged by itself: is it genuine and sound, whatever it vouches for?"""
MAX_DELIVERED: Final = 8
_CHAINED = ("validity", "root-set", "revocation")
_LEAFED = ("signing-key", "signature", "tcb", "chip-id")


@dataclass(frozen=True)
class SnpEndorsements:
    """What came beside a report, unbelieved: leaves (DER or PEM; one of each kind at most), further certificates, lists (DER)."""

    leaves: tuple[bytes, ...] = ()
    others: tuple[bytes, ...] = ()
    crls: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, table: CertificateTable) -> SnpEndorsements:
        """From a host's certificate table. Its root is left out: only configured roots count."""
        leaves, others, crls = (
            tuple(content for content in map(table.get, guids) if content) for guids in ((VCEK, VLEK), (ASK,), (CRL,))
        )
        return cls(leaves, others, crls)


@dataclass(frozen=True)
class ExaminedSnp:
    """What an examination found: the checks, and as much as could be parsed and chained. Believed only after `require`."""

    examination: Examination
    report: SnpReport | None = None
    leaf: Leaf | None = None
    chain: SnpChain | None = None
    root_set: SnpRootSet | None = None


def examine_snp_evidence(
    report: bytes,
    endorsements: SnpEndorsements,
    *,
    trust: SnpTrust,
    agreed: CpuPolicy,
    expected: Expectation = NOTHING_EXPECTED,
    at: float,
) -> ExaminedSnp:
    """Judge everything that can be judged; never raises for bad evidence. A report that cannot be parsed is one failed `layout`.

    Args:
        report: 1184 bytes.
        agreed: root sets that count, the switch for EMULATED ones, and the rules for SEV-SNP.
        expected: report data, profiles, machines; what is not expected stays "not-checked" (see `INSPECTION`).
        at: seconds since 1970.

    Raises:
        Unavailable: as `SnpTrust.lists`.
    """
    recipe = Recipe()
    parsed = _examine_layout(recipe, report)
    if parsed is None:
        return ExaminedSnp(recipe.done())
    leaf = _examine_leaf(recipe, endorsements, parsed.signing_key)
    chain = _examine_chain(recipe, leaf, endorsements, trust.roots)
    root_set = _examine_root(recipe, chain, endorsements, trust, agreed, at)
    if leaf is None:
        for name in _LEAFED:
            recipe.not_checked(name, "snp-leaf-missing", "there is no leaf to check it with")
    else:
        _examine_binding(recipe, parsed, leaf)
    appraise(recipe, parsed, leaf, trust.policy, agreed.snp, expected)
    return ExaminedSnp(recipe.done(), parsed, leaf, chain, root_set)


def _examine_layout(recipe: Recipe, report: bytes) -> SnpReport | None:
    parsed: SnpReport | None = None
    with recipe.step("layout"):
        parsed = parse_snp_report(report)
    return parsed  # noqa: RET504  # a failed step is recorded and leaves None


def _examine_leaf(recipe: Recipe, endorsements: SnpEndorsements, wanted: SigningKey) -> Leaf | None:
    if not endorsements.leaves:
        recipe.not_checked(
            "leaf",
            "snp-leaf-missing",
            "no VCEK or VLEK was delivered with the report",
            "fetch it from AMD's key distribution service by chip id and reported TCB, and give it beside the report",
        )
        return None
    leaf: Leaf | None = None
    with recipe.step("leaf"):
        leaves = [read_leaf(load_certificate(data)) for data in endorsements.leaves[:2]]
        leaf = next((found for found in leaves if found.kind is wanted), leaves[0])
    return leaf  # noqa: RET504


def _examine_chain(
    recipe: Recipe, leaf: Leaf | None, endorsements: SnpEndorsements, roots: SnpRoots
) -> SnpChain | None:
    if leaf is None:
        recipe.not_checked("certificate-chain", "snp-leaf-missing", "there is no leaf to begin the chain with")
        return None
    chain: SnpChain | None = None
    with recipe.step("certificate-chain"):
        if len(endorsements.others) > MAX_DELIVERED:
            raise VerificationFailed("too many certificates were delivered", code="snp-certificate-malformed")
        chain = verify_snp_chain(leaf, roots, [load_certificate(data) for data in endorsements.others])
    return chain  # noqa: RET504


def _examine_root(
    recipe: Recipe, chain: SnpChain | None, endorsements: SnpEndorsements, trust: SnpTrust, agreed: CpuPolicy, at: float
) -> SnpRootSet | None:
    if chain is None:
        for name in _CHAINED:
            recipe.not_checked(name, "snp-chain-unverified", "there is no verified chain to judge")
        return None
    with recipe.step("validity"):
        check_validity(chain, at)
    root_set = trust.roots.sets[chain.root.fingerprint]
    with recipe.step("root-set"):
        check_set(root_set, agreed.roots, allow_emulated=agreed.allow_emulated, what="the report", code="snp")
    with recipe.step("revocation"):
        own = [crl for crl in trust.lists() if crl.issuer == chain.root.parsed.subject]
        check_revocation(chain, own, _delivered_lists(endorsements, chain), at)
    return root_set


def _delivered_lists(endorsements: SnpEndorsements, chain: SnpChain) -> list[CertificateRevocationList]:
    """Lists that came with the evidence, where they can be read and concern this root: the sender may leave them out anyway."""
    found = []
    for data in endorsements.crls:
        with suppress(VerificationFailed):
            crl = load_crl(data)
            found += [crl] if crl.issuer == chain.root.parsed.subject else []
    return found


def _examine_binding(recipe: Recipe, report: SnpReport, leaf: Leaf) -> None:
    with recipe.step("signing-key"):
        if report.signing_key is not leaf.kind:
            raise VerificationFailed(
                "the report names another kind of signing key than the leaf's",
                code="snp-signing-key",
                expected=leaf.kind.name,
                got=report.signing_key.name,
            )
    with recipe.step("signature"):
        _check_signature(report, leaf)
    with recipe.step("tcb"):
        _check_tcb(report, leaf)
    with recipe.step("chip-id"):
        _check_chip(report, leaf)


def _check_signature(report: SnpReport, leaf: Leaf) -> None:
    r, s = int.from_bytes(report.r, "little"), int.from_bytes(report.s, "little")
    if not (0 < r < P384_ORDER and 0 < s < P384_ORDER):
        raise VerificationFailed("R or S of the report's signature is out of range", code="snp-signature-range")
    try:
        leaf.key.verify(encode_dss_signature(r, s), report.signed, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        raise VerificationFailed("the report is not signed by the leaf's key", code="snp-signature") from None


def _check_tcb(report: SnpReport, leaf: Leaf) -> None:
    # All four are parsed for their reserved bytes; the certificate speaks of the reported one only.
    reported, *_ = (
        parse_tcb(raw, leaf.product)
        for raw in (report.reported_tcb, report.current_tcb, report.committed_tcb, report.launch_tcb)
    )
    if reported != leaf.tcb:
        raise VerificationFailed(
            "the leaf is for other patch levels than the report states",
            code="snp-tcb",
            expected=str(leaf.tcb),
            got=str(reported),
            remedy="fetch the leaf for the reported TCB",
        )


def _check_chip(report: SnpReport, leaf: Leaf) -> None:
    if report.cpuid is not None and report.product != leaf.product:
        family, model, _ = report.cpuid
        raise VerificationFailed(
            "the report is of another product than the leaf",
            code="snp-product",
            expected=leaf.product,
            got=report.product or f"CPU family {family:#x} model {model:#x}",
        )
    masked = report.chip_masked and not any(report.chip_id)
    # A VLEK names no chip: it is its cloud's, not a machine's.
    if leaf.kind is SigningKey.VCEK and report.chip_id != leaf.hwid and not masked:
        raise VerificationFailed(
            "the leaf is another chip's than the report",
            code="snp-chip-id",
            expected=leaf.hwid.hex(),
            got=report.chip_id.hex(),
        )
