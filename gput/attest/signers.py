"""An orchestrator's attested signing key, judged: everything that channel and receipts insist on, but whose session it must be.

Three verdicts: what the key's runtime data say, its machine, its GPU. Knows no output.
"""

from __future__ import annotations

from gput.attest.judging import Judge, Judged
from gput.attest.trust import Wish
from shared.attestation.ar4si import Tolerated
from shared.attestation.certificates import moment
from shared.attestation.channel import CLOCK_SLACK_S, gpu_evidence_digest, report_data
from shared.attestation.evidence_pieces import Piece, SignerParts, decoded_base64, gpu_parts
from shared.attestation.gpu_chain import parse_chain, public_key
from shared.attestation.gpu_verifier import certified_statement_key
from shared.attestation.nonces import gpu_nonce
from shared.attestation.quote import parse_quote
from shared.attestation.results import Absent, CheckStatus, Expired, Recipe
from shared.attestation.session_events import check_measured_session
from shared.attestation.tdx_appraisal import check_event_log
from shared.errors import VerificationFailed
from shared.wire.visit import Evidence, GpuEvidence, RuntimeData

NO_STATEMENT_KEY: Tolerated = (("statement-key", CheckStatus.NOT_CHECKED),)
"""A channel takes a GPU without one, too; that there is none is covered by the quote."""


def judge_signer(judge: Judge, wish: Wish, piece: Piece, signer: SignerParts) -> list[Judged]:
    """An orchestrator's attested key: what its quote and its GPU's nonce must cover follows from its runtime data."""
    runtime, gpu, recipe = signer.runtime, signer.gpu, Recipe()
    recipe.judge(
        "role", lambda: _same("role", "channel-role", "orchestrator", runtime.role),
        says=lambda _: f"orchestrator of session {runtime.session}, manifest {runtime.manifest}",
    )  # fmt: skip
    if signer.signing_key is not None:
        recipe.judge(
            "signing-key", lambda: _same("key", "gpu-evidence-mismatch", runtime.signing_key, signer.signing_key)
        )
    recipe.judge(
        "gpu-evidence",
        lambda: _same("GPU evidence", "gpu-evidence-mismatch", str(runtime.gpu_evidence), gpu_evidence_digest(gpu)),
    )
    recipe.judge(
        "lifetime", lambda: _check_lifetime(runtime, wish), says=lambda _: f"until {moment(runtime.not_after)}"
    )
    if signer.evidence.kind == "tdx-quote":  # SEV-SNP has no register that a guest could measure an event into
        recipe.judge("session-event", lambda: _check_event(signer.evidence, runtime))
    recipe.judge("statement-key", lambda: _check_statement_key(gpu))
    nonce = gpu_nonce(
        bytes.fromhex(gpu.challenge), bytes.fromhex(gpu.th2), gpu.epoch, bytes.fromhex(runtime.signing_key)
    )
    return [
        Judged(piece.name, piece.kind.value, recipe.done(), NO_STATEMENT_KEY),
        judge.cvm(piece, signer.evidence, report_data("orchestrator", signer.runtime_data), "orchestrator"),
        judge.gpu(piece, gpu_parts(gpu), nonce),
    ]


def _same(what: str, code: str, expected: str, got: str | None) -> None:
    if expected != got:
        raise VerificationFailed(f"the quote speaks for another {what}", code=code, expected=expected, got=got)


def _check_lifetime(runtime: RuntimeData, wish: Wish) -> None:
    """As in a channel: not ended by the verifier's own clock, and no longer than the policy lets a quote count."""
    at, longest = wish.at, wish.agreed.max_age_s
    if at >= runtime.not_after:
        raise Expired(
            "the key's quote no longer counts", code="channel-lifetime", expected=f"before {moment(runtime.not_after)}",
            got=moment(at), remedy="verify at the time when the key signed (--at), or ask for a new one",
        )  # fmt: skip
    if runtime.not_after > at + longest + CLOCK_SLACK_S:
        raise VerificationFailed(
            "the key's quote would count for longer than the policy allows, or is from the future", code="channel-lifetime",
            expected=f"at most until {moment(at + longest)}", got=moment(runtime.not_after),
            remedy="give the session's own policy for its orchestrator (--policy), whose max_age_s counts",
        )  # fmt: skip


def _check_event(evidence: Evidence, runtime: RuntimeData) -> None:
    """The log that gives the quoted register names this session; whether the quote is genuine is its machine's verdict."""
    body = parse_quote(decoded_base64(evidence.quote)).body
    log = check_event_log(decoded_base64(evidence.event_log), decoded_base64(evidence.boot_log), body)
    check_measured_session(body.rtmr3, log.events, runtime)


def _check_statement_key(gpu: GpuEvidence) -> None:
    """Certified by the leaf that signs the report; whether that one is genuine is its GPU's verdict."""
    certificate = decoded_base64(gpu.statement_key)
    if not certificate:
        raise Absent(
            "the GPU certified no statement key: nothing that a device states is signed", code="no-statement-key"
        )
    certified_statement_key(public_key(parse_chain(gpu.chain).certificates[0]), certificate)
