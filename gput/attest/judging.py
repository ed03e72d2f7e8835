"""Judges what the files hold: which piece is evidence, what beside it belongs to it, and what each check says. Knows no output.

A piece that comes in several candidate companies (two chains, two leaves) is judged in each, and the company in which most checks pass
is shown: companions cannot make evidence genuine, they can only fail to show that it is. But what they take away counts, whatever stands
beside it and in whatever order: lists and collateral of all files are known to every company before any is judged, and of those whose key
signed the evidence one that says "withdrawn" is shown.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from gput.attest.trust import Trust, Wish
from shared.attestation.appraisal import ROOT_SET, Appraisal, check_list
from shared.attestation.appraisals import appraise_gpu, appraise_snp, appraise_tdx
from shared.attestation.ar4si import Tolerated
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import examine_cpu_evidence
from shared.attestation.evidence_pieces import FileKind, GpuParts, Piece, SignerParts, decoded_base64
from shared.attestation.gpu_examination import examine_gpu_evidence
from shared.attestation.offered import amd_intermediates, amd_leaves, chains, of_kind
from shared.attestation.results import CheckStatus, Examination
from shared.attestation.snp_appraisal import Expectation
from shared.attestation.snp_examination import SnpEndorsements, examine_snp_evidence
from shared.attestation.snp_trust import SnpTrust
from shared.errors import BadRequest, VerificationFailed
from shared.names import CvmRole
from shared.wire.snp_certificates import parse_certificate_table
from shared.wire.visit import Evidence

T = TypeVar("T")
COMPARE = "Say what to compare with (--report-data, --nonce, --role with --trust, --policy), or --genuine-only to leave that open."

SIGNATURES = ("signature", "quote-signature")
WITHDRAWN = ("snp-revoked", "collateral-revoked", "collateral-rollback", "tcb-revoked", "gpu-ocsp-revoked")
"""Codes by which a maker's word against a machine, or news of it that would be rolled back, is told."""


@dataclass(frozen=True)
class Judged:
    """One piece and what is to be said of it. `appraisal`: where it is evidence of a machine, and not a document about one; `root_set`: of
    a document, whose root it stands on."""

    name: str
    kind: str
    examination: Examination
    tolerated: Tolerated = ()
    appraisal: Appraisal | None = None
    root_set: str | None = None

    @property
    def refusal(self) -> VerificationFailed | None:
        """What stands against it: the first check that is neither passed nor tolerated."""
        try:
            self.examination.require(self.tolerated)
        except VerificationFailed as error:
            if not error.remedy and self._open(error.code):
                error.remedy = COMPARE
            return error
        if self.appraisal is not None and self.appraisal.verdict == "refused":
            return VerificationFailed("it stands on no root that is known", code="no-root")
        return None

    def _open(self, code: str) -> bool:
        return any(check.code == code and check.status is CheckStatus.NOT_CHECKED for check in self.examination)

    @property
    def unreadable(self) -> str:
        """Why not even its layout could be read; "" where it could."""
        return next((c.reason for c in self.examination if c.name == "layout" and c.status is CheckStatus.FAIL), "")

    @property
    def title(self) -> str:
        """What it is, on whose root."""
        found = self.appraisal.root_set if self.appraisal else self.root_set
        return f"{self.name}: {self.kind}" + (f", root set {found}" if found else "")

    @property
    def words(self) -> str:
        """The verdict in one sentence."""
        if (why := self.refusal) is not None:
            return f"refused: {why.detail} [{why.code}]"
        left = [check.name for check in self.examination if check.status is not CheckStatus.PASS]
        trust = f", trust {self.appraisal.status.value}" if self.appraisal else ""
        return f"accepted{trust}" + (f"; left open by the policy: {', '.join(left)}" if left else "")

    @property
    def record(self) -> dict[str, Any]:
        """Everything, for programs."""
        verdict = "refused" if self.refusal is not None else "accepted"
        record = {"name": self.name, "kind": self.kind, "verdict": verdict, "checks": check_list(self.examination)}
        if self.appraisal is not None:
            return {**self.appraisal.submodule(), **record}
        return record if self.root_set is None else {**record, ROOT_SET: self.root_set}


class Judge:
    """Judges evidence of machines, with everything that lies beside it."""

    def __init__(self, pieces: Sequence[Piece], trust: Trust, wish: Wish) -> None:
        self._pieces, self._wish = pieces, wish
        self._store = trust.cpu.collateral or CollateralStore(trust.cpu.roots.certificates)
        self._trust = replace(trust, cpu=replace(trust.cpu, collateral=self._store))
        # Of all the files, and first: a verdict must not hang on which of them was read before the news.
        learn(self._pieces, self._store)

    def believes(self, bundle: Piece) -> bool:
        """Whether this collateral is genuine, so that it counts for every quote."""
        try:
            self._store.learn(Collateral.parse(bundle.data))
        except VerificationFailed:
            return False
        return True

    def gpu(self, piece: Piece, parts: GpuParts | None = None, nonce: bytes | None = None) -> Judged:
        """A GPU's report: with its own chain, or with one of the files'."""
        wish, policy = self._wish, self._wish.gpu
        parts = parts or (piece.parts if isinstance(piece.parts, GpuParts) else None)
        report = parts.report if parts else piece.data
        beside = tuple(other.data for other in of_kind(self._pieces, FileKind.OCSP))

        def examine(chain: str) -> Appraisal:
            found = examine_gpu_evidence(
                report, chain, nonce=nonce or wish.nonce, trust=self._trust.gpu, policy=policy, at=wish.at,
                stapled=(*(parts.ocsp if parts else ()), *beside),
            )  # fmt: skip
            return appraise_gpu(found, report, policy, genuine_only=wish.genuine_only)

        best = _best([parts.chain] if parts else chains(self._pieces) or [""], examine)
        return _judged(piece, FileKind.GPU_REPORT, best)

    def tdx(
        self, piece: Piece, evidence: Evidence | None = None, data: bytes | None = None, role: CvmRole | None = None
    ) -> Judged:
        """A TDX quote: with what came along, or with the files' collateral and logs."""
        wish, given = self._wish, evidence or self._assembled(piece)
        quote = decoded_base64(given.quote)
        trust, policy = self._trust.cpu, self._wish.cpu
        # Agreed measurements need no role; they are what counts then.
        counts = role or wish.role or ("orchestrator" if policy.measurements else None)

        def examine(offered: str) -> Appraisal:
            asked = given.model_copy(update={"endorsements": given.endorsements or offered})
            found = examine_cpu_evidence(
                asked, report_data=data or wish.report_data, role=counts, roots=trust.roots, reference=trust.reference,
                policy=policy, at=wish.at, collateral=trust.collateral,
            )  # fmt: skip
            return appraise_tdx(found, quote, policy, genuine_only=wish.genuine_only)

        bundles = [] if given.endorsements else [_b64(p.data) for p in of_kind(self._pieces, FileKind.COLLATERAL)]
        return _judged(piece, FileKind.TDX_QUOTE, _best(bundles or [""], examine))

    def _assembled(self, piece: Piece) -> Evidence:
        events, boot = (of_kind(self._pieces, kind) for kind in (FileKind.EVENT_LOG, FileKind.BOOT_LOG))
        return Evidence(
            quote=_b64(piece.data),
            event_log=_b64(events[0].data) if events else "",
            boot_log=_b64(boot[0].data) if boot else "",
        )

    def snp(
        self,
        piece: Piece,
        report: bytes,
        own: SnpEndorsements | None = None,
        data: bytes | None = None,
        role: CvmRole | None = None,
    ) -> Judged:
        """An SEV-SNP report: with its own certificate table, or with one of the files' leaves."""
        wish, trust, policy = self._wish, self._snp, self._wish.cpu
        counts = role or wish.role or ("orchestrator" if policy.measurements else None)
        profiles = trust.accepted(counts, policy.measurements) if counts else None
        expected = Expectation(data or wish.report_data, profiles, policy.platforms)

        def examine(endorsements: SnpEndorsements) -> Appraisal:
            # A host's list counts with every company's certificates, but stays a host's: see `check_revocation`.
            crls = dict.fromkeys(crl for given in (endorsements, *self._tables) for crl in given.crls)
            found = examine_snp_evidence(
                report,
                replace(endorsements, crls=tuple(crls)),
                trust=trust,
                agreed=policy,
                expected=expected,
                at=wish.at,
            )
            return appraise_snp(found, report, policy, trust.policy, genuine_only=wish.genuine_only)

        return _judged(piece, FileKind.SNP_REPORT, _best([own] if own else self._endorsements(), examine))

    @cached_property
    def _snp(self) -> SnpTrust:
        """With the lists among the files: they are the person's word, whichever certificates the report is judged with."""
        return _knowing_lists(self._trust.snp, self._pieces)

    @cached_property
    def _tables(self) -> list[SnpEndorsements]:
        return [SnpEndorsements.of(parse_certificate_table(p.data)) for p in of_kind(self._pieces, FileKind.SNP_TABLE)]

    def _endorsements(self) -> list[SnpEndorsements]:
        others = amd_intermediates(self._pieces)
        leaves = [SnpEndorsements((leaf,), others) for leaf in amd_leaves(self._pieces)]
        return [*self._tables, *leaves] or [SnpEndorsements((), others)]

    def cvm(self, piece: Piece, evidence: Evidence, data: bytes | None = None, role: CvmRole | None = None) -> Judged:
        """CVM evidence as it travels. Raises: BadRequest: its parts are not base64, or its table is malformed."""
        if evidence.kind == "tdx-quote":
            return self.tdx(piece, evidence, data, role)
        table = decoded_base64(evidence.endorsements)
        own = SnpEndorsements.of(parse_certificate_table(table)) if table else None
        return self.snp(piece, decoded_base64(evidence.quote), own, data, role)


def _judged(piece: Piece, kind: FileKind, appraisal: Appraisal) -> Judged:
    return Judged(piece.name, kind.value, appraisal.examination, appraisal.tolerated, appraisal)


def _best(candidates: Iterable[T], examine: Callable[[T], Appraisal]) -> Appraisal:
    return max((examine(candidate) for candidate in candidates), key=_weight)


def _weight(one: Appraisal) -> tuple[bool, bool, int]:
    """A company that did not sign the evidence says nothing against it, and of those that did a withdrawn one counts."""
    passed = [check.name for check in one.examination if check.status is CheckStatus.PASS]
    own = any(name in passed for name in SIGNATURES)
    withdrawn = any(check.code in WITHDRAWN for check in one.examination)
    return own, own and withdrawn, len(passed)


def learn(pieces: Sequence[Piece], store: CollateralStore) -> None:
    """Let the store know all genuine collateral of the files; the rest is refused where it is judged."""
    for piece in pieces:
        with contextlib.suppress(VerificationFailed, BadRequest):
            if bundle := _collateral(piece):
                store.learn(Collateral.parse(bundle))


def _collateral(piece: Piece) -> bytes:
    """What the piece is, or what came along in it. Raises: BadRequest."""
    evidence = piece.parts.evidence if isinstance(piece.parts, SignerParts) else piece.parts
    if isinstance(evidence, Evidence) and evidence.kind == "tdx-quote":
        return decoded_base64(evidence.endorsements)
    return piece.data if piece.kind is FileKind.COLLATERAL else b""


def _knowing_lists(trust: SnpTrust, pieces: Sequence[Piece]) -> SnpTrust:
    """Raises: BadRequest `malformed-evidence`: a file is a list that cannot be read."""
    for piece in of_kind(pieces, FileKind.CRL):
        try:
            trust = trust.knowing(piece.data)
        except VerificationFailed as error:
            raise BadRequest(f"{piece.name}: {piece.kind.value}: {error.detail}", code="malformed-evidence",
                             remedy="Leave the file out, or give a sound one.") from None  # fmt: skip
    return trust


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
