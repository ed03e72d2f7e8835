"""Approvals, refusals and vetoes: a holder's signature over the manifest's digest, verified when it comes and whenever it is loaded.

Pure: knows no storage and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from orchestrator.sessions.state import SessionState
from shared.attestation.one_time_keys import decoded
from shared.canonical import json_bytes, json_value
from shared.claims.manifest import Manifest
from shared.crypto.signing import fingerprint, verify
from shared.errors import BadRequest, Conflict, NotPermitted, VerificationFailed
from shared.protocol.session import SessionFact
from shared.wire.visit import Approval, Signed

LABEL = "gput/approval"
MANIFEST_LABEL = "gput/manifest"
FACTS = {"approve": SessionFact.APPROVED, "refuse": SessionFact.REFUSED, "veto": SessionFact.VETOED}


@dataclass(frozen=True)
class VerifiedApproval:
    """An approval whose signature is the roster's holder's. Only `verify_approval` makes one."""

    approval: Approval
    signed: Signed
    public_key: bytes

    def body(self) -> dict[str, Any]:
        """As the journal keeps it: enough to verify it again without any other row."""
        return {
            "holder": self.approval.holder, "document": self.signed.document, "signature": self.signed.signature,
            "public_key": self.public_key.hex(), "reason": self.approval.reason,
        }  # fmt: skip


def verify_approval(signed: Signed, public_key: bytes, *, session: str, manifest: Manifest) -> VerifiedApproval:
    """Check one approval document.

    1. The key is the one the manifest's roster names for that holder.
    2. The signature covers the document's exact bytes.
    3. The document speaks of this session and this manifest.

    Raises:
        BadRequest: not an approval. VerificationFailed: any of the above fails. NotPermitted: not in the roster.
    """
    document = decoded(signed.document)
    approval = _parse(document)
    verify(roster_key(manifest, approval.holder, public_key), LABEL, document, decoded(signed.signature))
    if approval.session != session or approval.manifest != manifest.digest().hex():
        raise VerificationFailed(
            "The approval speaks of another session or another manifest", code="approval-mismatch",
            remedy="Read the manifest again and sign its digest.",
            expected=f"{session} {manifest.digest().hex()}", got=f"{approval.session} {approval.manifest}",
        )  # fmt: skip
    return VerifiedApproval(approval, signed, public_key)


def roster_key(manifest: Manifest, holder: str, public_key: bytes) -> bytes:
    """`public_key` (raw), if it is the one that the manifest's roster names for `holder`.

    Raises:
        NotPermitted: not in the roster. VerificationFailed: another key.
    """
    entry = next((e for e in manifest.roster if e.holder == holder), None)
    if entry is None:
        raise NotPermitted(f"{holder} is not in this session's roster", code="not-in-roster")
    if fingerprint(public_key) != entry.key:
        raise VerificationFailed(f"The key is not the one that the roster names for {holder}", code="key-mismatch",
                                 expected=entry.key, got=fingerprint(public_key))  # fmt: skip
    return public_key


def _parse(document: bytes) -> Approval:
    try:
        approval = Approval.model_validate(json_value(document))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise BadRequest(
            f"The approval's field {first['loc']} is wrong: {first['msg']}", code="malformed-approval"
        ) from None
    if json_bytes(approval.model_dump(mode="json")) != document:
        raise BadRequest("The approval is not in canonical form", code="not-canonical")
    return approval


def judge(state: SessionState, approval: Approval) -> SessionFact:
    """The fact that this decision is in the session as it stands.

    Raises:
        Conflict: the session has ended, or the holder has vetoed (which is final).
    """
    if state.ended:
        raise Conflict(f"The session has ended ({state.phase.value})", code="session-ended")
    if state.decisions.get(approval.holder) == "veto":
        raise Conflict("A veto is final", code="already-vetoed", remedy="Ask the owner for a new session.")
    return FACTS[approval.decision]


def agreed(state: SessionState) -> bool:
    """Whether enough holders approve for the session to become ready."""
    return len(state.active) >= state.quorum


def check_quorum(state: SessionState) -> None:
    """Whether enough holders still take part. Raises: VerificationFailed: `quorum-lost`."""
    if not agreed(state):
        raise VerificationFailed(
            "Too few holders still take part", code="quorum-lost", remedy="Submit a new session with those who agree.",
            expected=f"at least {state.quorum}", got=str(len(state.active)),
        )  # fmt: skip
