"""What a verified decision of a holder means for a session as it stands. Pure: knows no storage and no HTTP."""

from __future__ import annotations

from orchestrator.sessions.state import SessionState
from shared.claims.accountant import over_budget
from shared.errors import Conflict, VerificationFailed
from shared.protocol.session import SessionFact
from shared.wire.visit import Approval

MANIFEST_LABEL = "gput/manifest"
FACTS = {"approve": SessionFact.APPROVED, "refuse": SessionFact.REFUSED, "veto": SessionFact.VETOED}


def judge(state: SessionState, approval: Approval) -> SessionFact:
    """The fact that this decision is in the session as it stands.

    Raises:
        Conflict: the session has ended, the holder has vetoed (which is final), it approved another dataset before, or has too few
            records for the privacy that the manifest states.
    """
    if state.ended:
        raise Conflict(f"The session has ended ({state.phase.value})", code="session-ended")
    if state.decisions.get(approval.holder) == "veto":
        raise Conflict("A veto is final", code="already-vetoed", remedy="Ask the owner for a new session.")
    before = state.datasets.get(approval.holder)
    if before is not None and approval.dataset_root not in (None, before.root):
        raise Conflict(
            f"{approval.holder} approved this session with another dataset before", code="dataset-changed",
            remedy="Put the approved data back, or veto and ask the owner for a new session.",
            expected=before.root, got=str(approval.dataset_root),
        )  # fmt: skip
    spends_more = (
        over_budget(state.manifest, approval.holder, approval.records) if approval.decision == "approve" else ""
    )
    if spends_more:
        raise Conflict(f"This approval cannot stand: {spends_more}", code="privacy-budget",
                       remedy="Bring more records, or ask the owner for a session with more noise.")  # fmt: skip
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
