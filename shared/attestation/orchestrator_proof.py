"""Whether the program behind an address is the measured orchestrator: its statement, and the verifier. Knows no HTTP, clock or store.

The quote covers report_data = SHA-512("gput/orchestrator/1" 00 ‖ statement), the exact bytes as sent. The nonce makes it fresh, the
caller's fingerprint makes it an answer to nobody else. It says nothing of a session: there each key has evidence of its own.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from pydantic import ValidationError

from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cvm_verifier import Cvm, verify_cvm_evidence
from shared.attestation.one_time_keys import decoded
from shared.canonical import json_bytes, json_value, sha512
from shared.errors import BadRequest, VerificationFailed
from shared.wire.attestation import OrchestratorProof, OrchestratorStatement

LABEL = b"gput/orchestrator/1\x00"
_MINT = object()


@dataclass(frozen=True)
class AttestedOrchestrator:
    """An orchestrator whose code was verified. `identity_key`: raw Ed25519, 32 bytes. Only `verify_orchestrator_proof` makes it."""

    cvm: Cvm
    identity_key: bytes
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("AttestedOrchestrator is made by verify_orchestrator_proof only")


def build_statement(*, nonce: str, caller: str, identity_key: bytes) -> bytes:
    """The statement's bytes, canonical JSON. `nonce` and `caller` as asked, hex."""
    said = OrchestratorStatement(nonce=nonce, caller=caller, identity_key=identity_key.hex())
    return json_bytes(said.model_dump(mode="json"))


def statement_report_data(statement: bytes) -> bytes:
    """The 64 bytes that the quote covers."""
    return sha512(LABEL + statement)


def verify_orchestrator_proof(
    proof: OrchestratorProof, *, nonce: str, caller: str, cpu: CpuTrust, at: float
) -> AttestedOrchestrator:
    """Verify in this order: structure, nonce, caller, quote.

    Args:
        nonce: the one that was asked with, hex. caller: fingerprint of one's own key, hex.
        at: the verifier's own time, seconds since 1970.

    Raises:
        BadRequest: `malformed-statement`. VerificationFailed: `statement-nonce`, `statement-caller`, the CPU verifier's codes.
    """
    raw = decoded(proof.statement)
    try:
        said = OrchestratorStatement.model_validate(json_value(raw))
    except ValidationError:
        raise BadRequest("the orchestrator's statement is malformed", code="malformed-statement") from None
    for name, expected, got in (("nonce", nonce, said.nonce), ("caller", caller, said.caller)):
        if expected != got:
            raise VerificationFailed(
                f"the proof answers another {name}", code=f"statement-{name}", expected=expected, got=got
            )
    cvm = verify_cvm_evidence(
        proof.evidence, report_data=statement_report_data(raw), role="orchestrator", trust=cpu, at=at
    )
    return AttestedOrchestrator(cvm, bytes.fromhex(said.identity_key), _MINT)
