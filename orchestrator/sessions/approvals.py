"""What a verified decision of a holder means for a session as it stands. Pure: knows no storage and no HTTP."""

from __future__ import annotations

from orchestrator.sessions.agreement import mismatches
from orchestrator.sessions.state import SessionState
from shared.claims.accountant import over_budget
from shared.errors import Conflict, VerificationFailed
from shared.names import SessionPhase
from shared.protocol.session import SessionFact
from shared.wire.visit import Approval

MOST_WORDS = 64
"""Decisions of one holder that a session takes, beside a veto: each is verified again whenever the session is loaded."""
FACTS = {"approve": SessionFact.APPROVED, "refuse": SessionFact.REFUSED, "veto": SessionFact.VETOED}


def judge(state: SessionState, approval: Approval) -> SessionFact:
    """The fact that this decision is in the session as it stands.

    Raises:
        Conflict: the session has ended, the holder has vetoed (which is final) or said too much already, it approved another dataset
            before, has too few records for the privacy that the manifest states, or joins a session that others agreed on with a
            dataset unlike theirs.
    """
    if state.ended:
        raise Conflict(f"The session has ended ({state.phase.value})", code="session-ended")
    if state.decisions.get(approval.holder) == "veto":
        raise Conflict("A veto is final", code="already-vetoed", remedy="Ask the owner for a new session.")
    if approval.decision != "veto" and len(state.words.get(approval.holder, ())) >= MOST_WORDS:
        raise Conflict(f"{approval.holder} has decided about this session {MOST_WORDS} times", code="too-many-decisions",
                       remedy="What it said last stands. It can still veto.")  # fmt: skip
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
    if approval.decision == "approve" and state.phase is not SessionPhase.AWAITING_APPROVAL:
        _check_joining(state, approval)
    return FACTS[approval.decision]


def _check_joining(state: SessionState, approval: Approval) -> None:
    """While holders are waited for a mismatch holds the session; afterwards it would train on, so whoever brings it stays out."""
    found = mismatches({**state.profiles, approval.holder: approval.profile})
    if found:
        raise Conflict(f"This approval comes late and cannot join: {found[0].detail}", code="dataset-mismatch",
                       remedy="Correct what the dataset declares, or bring data that were made like the others'.")  # fmt: skip


def enough(state: SessionState) -> bool:
    """Whether as many holders take part as the manifest asks for."""
    return len(state.active) >= state.quorum


def agreed(state: SessionState) -> bool:
    """Whether the session may become ready: enough holders approve, and none of their datasets contradicts another."""
    return enough(state) and not any(finding.holds for finding in state.unlike)


def check_quorum(state: SessionState) -> None:
    """Whether enough holders still take part. Raises: VerificationFailed: `quorum-lost`."""
    if not enough(state):
        raise VerificationFailed(
            "Too few holders still take part", code="quorum-lost", remedy="Submit a new session with those who agree.",
            expected=f"at least {state.quorum}", got=str(len(state.active)),
        )  # fmt: skip
