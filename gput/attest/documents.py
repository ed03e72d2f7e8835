"""Everything that the files hold, judged: evidence of machines first; where there is none, the documents about machines by themselves.

A document (manifest, collateral, chain, result) says nothing of any machine's state; it is genuine or not. What nobody could judge is
not accepted. Knows no output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gput.attest.judging import Judge, Judged
from gput.attest.signers import judge_signer
from gput.attest.trust import Trust, Wish
from shared.attestation.ar4si import Tolerated
from shared.attestation.azure_hcl import parse_hcl
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.ear import AttestationResult, read_result
from shared.attestation.evidence_pieces import FileKind, Piece, SignerParts
from shared.attestation.gpu_chain import certified_firmware, identity_of, parse_chain
from shared.attestation.gpu_ocsp import check_revocation, parse_responses
from shared.attestation.gpu_rim import Rim, check_signature, parse_rim
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.nvidia_eat import parse_eat
from shared.attestation.offered import of_kind
from shared.attestation.p384_chain import Chain, anchored, check_links, check_validity
from shared.attestation.pck import certificate_fingerprint
from shared.attestation.results import Absent, CheckStatus, Recipe
from shared.attestation.root_sets import check_set
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import Evidence

NO_OCSP: Tolerated = (("ocsp", CheckStatus.NOT_CHECKED), ("ocsp", CheckStatus.EXPIRED))

COMPANIONS = (
    FileKind.CERTIFICATES, FileKind.CRL, FileKind.OCSP, FileKind.DRIVER_RIM, FileKind.VBIOS_RIM, FileKind.COLLATERAL, FileKind.SNP_TABLE,
    FileKind.EVENT_LOG, FileKind.BOOT_LOG,
)  # fmt: skip
"""What belongs to evidence, and is none."""
LEADING = (FileKind.DRIVER_RIM, FileKind.VBIOS_RIM, FileKind.COLLATERAL)
ASKED_BY = {
    FileKind.CRL: (FileKind.SNP_REPORT,),
    FileKind.OCSP: (FileKind.GPU_REPORT, FileKind.DRIVER_RIM, FileKind.VBIOS_RIM),
}
"""Whose certificates a list is looked up for; a TDX machine's lists are part of its collateral."""


def judge(pieces: Sequence[Piece], trust: Trust, wish: Wish) -> list[Judged]:
    """Every piece of evidence, in the files' order; documents only where there is no evidence that they belong to.

    Raises:
        BadRequest: `malformed-…`: evidence, or what was named beside it, that cannot be taken apart at all.
    """
    subjects, documents = Judge(pieces, trust, wish), _Documents(pieces, trust, wish)
    evidence = [judged for piece in pieces for judged in _subject(subjects, documents, piece)]
    verdicts = {FileKind.RESULT: documents.result, FileKind.NVIDIA_RESULT: documents.nvidia_result}
    results = [verdicts[piece.kind](piece) for piece in pieces if piece.kind in verdicts]
    if evidence or results:
        _require_sound_companions(pieces)
        foreign = [piece for piece in of_kind(pieces, FileKind.COLLATERAL) if not subjects.believes(piece)]
        found = [*evidence, *results, *map(documents.collateral, foreign)]
    else:
        # Lists and single certificates are there for the manifests' and the collateral's sake, if there are any.
        leading = [piece for piece in pieces if piece.kind in LEADING]
        found = [documents.document(piece) for piece in leading or pieces]
    kinds = {one.kind for one in found}
    return [*found, *(documents.unjudged(piece) for piece in pieces if _idle(piece, kinds))]


def _idle(piece: Piece, kinds: set[str]) -> bool:
    """Whether it is a list of withdrawn certificates, and nothing that was judged has any: whoever named it thinks it counts."""
    return piece.kind in ASKED_BY and not {*ASKED_BY[piece.kind], piece.kind.value} & kinds


def _require_sound_companions(pieces: Sequence[Piece]) -> None:
    """Nothing that a person named is passed over in silence, though the evidence may do without it."""
    for piece in pieces:
        if piece.fault and piece.kind in COMPANIONS:
            raise BadRequest(f"{piece.name}: {piece.kind.value}: {piece.fault}", code="malformed-evidence",
                             remedy="Leave the file out, or give a sound one.")  # fmt: skip


def _subject(judge: Judge, documents: _Documents, piece: Piece) -> list[Judged]:
    match piece.kind:
        case FileKind.GPU_REPORT | FileKind.GPU_EVIDENCE:
            return [judge.gpu(piece)]
        case FileKind.TDX_QUOTE:
            return [judge.tdx(piece)]
        case FileKind.SNP_REPORT:
            return [judge.snp(piece, piece.data)]
        case FileKind.HCL:
            return [documents.hcl(piece), *([judge.snp(piece, report)] if (report := _snp_inside(piece)) else [])]
        case _:
            pass
    match piece.parts:
        case Evidence() as evidence:
            return [judge.cvm(piece, evidence)]
        case SignerParts() as signer:
            return judge_signer(judge, documents.wish, piece, signer)
        case _:
            return []


def _snp_inside(piece: Piece) -> bytes | None:
    blob = None if piece.fault else parse_hcl(piece.data)
    return blob.report if blob is not None and blob.kind == "snp" else None


@dataclass(frozen=True)
class _Documents:
    """Judges what is no evidence of a machine."""

    pieces: Sequence[Piece]
    trust: Trust
    wish: Wish

    def document(self, piece: Piece) -> Judged:
        """By its kind."""
        known: dict[FileKind, Callable[[Piece], Judged]] = {
            FileKind.DRIVER_RIM: self.rim, FileKind.VBIOS_RIM: self.rim, FileKind.COLLATERAL: self.collateral,
            FileKind.CERTIFICATES: self.chain,
        }  # fmt: skip
        return known.get(piece.kind, self.unjudged)(piece)

    def result(self, piece: Piece) -> Judged:
        """An attestation result: by whose key, and what it says."""
        recipe, key = Recipe(), self.wish.verifier
        found = recipe.judge("signature", self._read, piece) if key else None
        if key is None:
            recipe.not_checked(
                "signature",
                "no-verifier-key",
                "nobody said whose attestation results count",
                "give --verifier-key PUB.pem",
            )
        recipe.judge("verdict", _accepted, found)
        recipe.judge("root-set", self._hardware, found)
        return Judged(piece.name, piece.kind.value, recipe.done())

    def nvidia_result(self, piece: Piece) -> Judged:
        """What NVIDIA's service said of a GPU: whole, of this time, in favour; but not by a key that is pinned here."""
        recipe = Recipe()
        found = recipe.judge("layout", parse_eat, piece.data, says=lambda read: read.validity)
        recipe.judge("submodules", lambda read: read.check_digests(), found)
        recipe.judge("verdict", lambda read: read.check_verdict(), found)
        recipe.judge("token-time", lambda read: read.check_time(self.wish.at), found)
        recipe.not_checked(
            "signature",
            "no-verifier-key",
            "NVIDIA's service publishes its keys on line only; none is pinned here",
            "judge the report itself: give the GPU evidence that this result is about",
        )
        return Judged(piece.name, piece.kind.value, recipe.done())

    def _read(self, piece: Piece) -> AttestationResult:
        return read_result(piece.data.decode("ascii"), self.wish.verifier or b"", at=self.wish.at)

    def _hardware(self, found: AttestationResult) -> None:
        if found.emulated and not self.wish.allow_emulated:
            raise VerificationFailed(
                "the result is about EMULATED evidence, and that was not allowed here", code="result-emulated",
                expected="hardware", got="EMULATED", remedy="say --allow-emulated only where nothing real is at stake",
            )  # fmt: skip

    def hcl(self, piece: Piece) -> Judged:
        """Azure's blob: its report covers the variable data; a TDREPORT is signed by nobody."""
        recipe = Recipe()
        blob = recipe.judge("layout", parse_hcl, piece.data)
        recipe.judge("variable-data", lambda read: read.check_variable_data(), blob)
        if blob is not None and blob.kind == "tdx":
            recipe.not_checked("report", "not-verifiable", "a TDREPORT is not signed", "give the quote made from it")
        return Judged(piece.name, piece.kind.value, recipe.done())

    def rim(self, piece: Piece) -> Judged:
        """A manifest: whose, and whether it is as it was signed."""
        recipe, kind = Recipe(), piece.rim_kind
        rim = recipe.judge(
            "rim", lambda: parse_rim(kind, piece.data), says=lambda read: f"{read.product} {read.version}"
        )
        chain = recipe.judge("rim-chain", self._rim_chain, rim)
        root_set = self._root_set(recipe, chain, self.trust.gpu.rim_roots, "gpu-rim")
        recipe.judge("rim-signature", lambda read: check_signature(kind, read), rim)
        recipe.judge("rim-time", lambda read: check_validity(read, self.wish.at), chain)
        recipe.judge("ocsp", lambda read: self._ocsp(read, 0), chain)
        return Judged(piece.name, piece.kind.value, recipe.done(), NO_OCSP, root_set=root_set)

    def _root_set(self, recipe: Recipe, chain: Chain | None, roots: GpuRoots, code: str) -> str | None:
        """Law L10 counts for what is no evidence as well: a document under an EMULATED root must not pass for a maker's."""
        found = roots.sets[certificate_fingerprint(chain.certificates[-1])] if chain is not None else None
        self._check_set(recipe, found, chain.name if chain is not None else "", code)
        return found

    def _check_set(self, recipe: Recipe, found: str | None, what: str, code: str) -> None:
        wish = self.wish

        def check(root_set: str) -> None:
            check_set(root_set, wish.agreed.roots, allow_emulated=wish.allow_emulated, what=what, code=code)

        recipe.judge("root-set", check, found)

    def _rim_chain(self, rim: Rim) -> Chain:
        chain, _ = anchored(rim.chain, self.trust.gpu.rim_roots.certificates, root_may_be_absent=True)
        check_links(chain)
        return chain

    def _ocsp(self, chain: Chain, first: int) -> None:
        ders = [piece.data for piece in of_kind(self.pieces, FileKind.OCSP)]
        check_revocation(
            chain, parse_responses([*ders, *self.trust.gpu.ocsp_responses()]), at=self.wish.at, first=first
        )

    def collateral(self, piece: Piece) -> Judged:
        """A bundle: signed throughout up to a pinned root that counts, by nobody whom that root withdrew, and current."""
        recipe, store = Recipe(), CollateralStore(self.trust.cpu.roots.certificates)
        parsed = recipe.judge("layout", Collateral.parse, piece.data)
        bundle = recipe.judge("collateral", store.learn, parsed, says=lambda read: f"FMSPC {read.tcb_info.fmspc.hex()}")
        root_set = self.trust.cpu.roots.sets[bundle.root_fingerprint] if bundle is not None else None
        self._check_set(recipe, root_set, "the collateral", "collateral")
        recipe.judge("revocation", lambda read: read.check_signers(), bundle)
        recipe.judge("collateral-time", lambda read: read.check_time(self.wish.at), bundle)
        return Judged(piece.name, piece.kind.value, recipe.done(), root_set=root_set)

    def chain(self, piece: Piece) -> Judged:
        """A GPU's chain; other certificates vouch for nothing by themselves."""
        recipe = Recipe()
        chain = recipe.judge("certificates", parse_chain, piece.data.decode("utf-8", "replace"))
        roots = self.trust.gpu.roots
        anchor = recipe.judge("root", lambda read: anchored(read, roots.certificates)[0], chain)
        root_set = self._root_set(recipe, anchor, roots, "gpu")
        recipe.judge("links", check_links, chain)
        recipe.judge("device-id", certified_firmware, chain)
        recipe.judge("device-type", identity_of, chain, says=lambda read: f"{read.product} {read.pdi}")
        recipe.judge("certificate-time", lambda read: check_validity(read, self.wish.at), chain)
        recipe.judge("ocsp", lambda read: self._ocsp(read, 1), chain)
        found = recipe.done()
        if chain is None and not piece.fault:
            reason = "these are not a GPU's chain: what they vouch for is not among the files"
            found = replace(found, checks=(replace(found.checks[0], status=CheckStatus.NOT_CHECKED, reason=reason),))
        return Judged(piece.name, piece.kind.value, found, NO_OCSP, root_set=root_set)

    def unjudged(self, piece: Piece) -> Judged:
        """What says something only together with evidence."""
        recipe = Recipe()
        recipe.not_checked(
            "evidence",
            "no-evidence",
            f"a {piece.kind.value} says nothing by itself",
            "name the evidence that it belongs to as well",
        )
        return Judged(piece.name, piece.kind.value, recipe.done())


def _accepted(found: AttestationResult) -> None:
    if not found.accepted:
        refused = [name for name, part in found.submodules.items() if part["gput.verdict"] != "accepted"]
        raise VerificationFailed(
            "its verifier refused this evidence",
            code="result-refused",
            expected="accepted",
            got=", ".join(refused) or "nothing",
        )
    if not found.submodules:
        raise Absent("it is about nothing", code="nothing-checked")
