"""The session's table (design 4.1). Knows no storage."""

from __future__ import annotations

from enum import StrEnum

from shared.names import Role, SessionPhase
from shared.protocol.machine import Machine, Move


class SessionFact(StrEnum):
    """What can happen to a session as a whole; each is one journal row."""

    SUBMITTED = "submitted"
    APPROVED = "approved"  # one holder's approval; the last one needed is `agreed`
    REFUSED = "refused"
    VETOED = "vetoed"
    AGREED = "agreed"
    STARTED = "started"
    HEADS_CONFIRMED = "heads_confirmed"  # the quorum's remembered log heads lie in this log; each start asks anew
    HEAD_CONTRADICTED = "head_contradicted"  # a holder remembers another log: `failed` follows
    KEY_RECOVERED = "key_recovered"  # another orchestrator, or another release, has it from the holders' shares
    LIFE_OPENED = "life_opened"
    PLACED = "placed"
    UNPLACED = "unplaced"  # what the GPU holds counts no more; written down before it is emptied
    CHECKPOINTS_GONE = "checkpoints_gone"  # files of sealed models are not there any more: one is sealed in their place
    CHECKPOINTED = "checkpointed"
    RESTORED = "restored"
    PAUSE_ASKED = "pause_asked"  # the owner's word, kept until the visit under way has ended: `paused`
    PAUSED = "paused"
    RESUMED = "resumed"
    TOUR_JUDGED = (
        "tour_judged"  # whether the step of a tour's accumulated gradients is kept; written down before the GPU commits
    )
    TOUR_ENDED = "tour_ended"
    TOUR_FAILED = "tour_failed"  # the GPU failed to make a tour's end; so often, and `failed` follows
    STOPPED_EARLY = (
        "stopped_early"  # the held-out loss has not fallen for as long as the manifest waits: no visit follows
    )
    LAST_CHECKED = "last_checked"  # the held-out check of the finished model, where its last visit had none
    BEST_CHOSEN = "best_chosen"  # written down before the GPU goes back to the model of the least held-out loss
    BEST_RESTORED = "best_restored"
    EXPORTED = "exported"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCEL_ASKED = "cancel_asked"  # the owner's word, kept until nothing is under way: `cancelled`
    CANCELLED = "cancelled"


_S, _F, _M = SessionPhase, SessionFact, Move
_ORCH, _OWNER, _HOLDER = Role.ORCHESTRATOR, Role.OWNER, Role.HOLDER
_LIVE = (_S.AWAITING_APPROVAL, _S.READY, _S.RUNNING, _S.PAUSED)

TRANSITIONS = {
    (_S.DRAFT, _F.SUBMITTED): _M(_OWNER, _S.AWAITING_APPROVAL),
    (_S.AWAITING_APPROVAL, _F.APPROVED): _M(_HOLDER, _S.AWAITING_APPROVAL),
    (_S.AWAITING_APPROVAL, _F.REFUSED): _M(_HOLDER, _S.AWAITING_APPROVAL),
    (_S.AWAITING_APPROVAL, _F.AGREED): _M(_ORCH, _S.READY),
    (_S.READY, _F.STARTED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.HEADS_CONFIRMED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.HEAD_CONTRADICTED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.LIFE_OPENED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.PLACED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.UNPLACED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.CHECKPOINTS_GONE): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.CHECKPOINTED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.RESTORED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.PAUSE_ASKED): _M(_OWNER, _S.RUNNING),
    (_S.RUNNING, _F.PAUSED): _M(_OWNER, _S.PAUSED),
    (_S.PAUSED, _F.CHECKPOINTS_GONE): _M(_ORCH, _S.PAUSED),
    (_S.PAUSED, _F.CHECKPOINTED): _M(_ORCH, _S.PAUSED),
    (_S.PAUSED, _F.RESUMED): _M(_OWNER, _S.RUNNING),
    (_S.RUNNING, _F.RESUMED): _M(_OWNER, _S.RUNNING),  # takes a pause back that has not begun
    (_S.RUNNING, _F.TOUR_JUDGED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.TOUR_ENDED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.TOUR_FAILED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.STOPPED_EARLY): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.LAST_CHECKED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.BEST_CHOSEN): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.BEST_RESTORED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.EXPORTED): _M(_ORCH, _S.RUNNING),
    (_S.RUNNING, _F.COMPLETED): _M(_ORCH, _S.COMPLETED),
    # A late approval joins a running session that a quorum has started; a veto never stops anybody else.
    **{(phase, _F.APPROVED): _M(_HOLDER, phase) for phase in (_S.READY, _S.RUNNING, _S.PAUSED)},
    **{(phase, _F.REFUSED): _M(_HOLDER, phase) for phase in (_S.READY, _S.RUNNING, _S.PAUSED)},
    **{(phase, _F.VETOED): _M(_HOLDER, phase) for phase in _LIVE},
    **{(phase, _F.KEY_RECOVERED): _M(_ORCH, phase) for phase in _LIVE},
    **{(phase, _F.FAILED): _M(_ORCH, _S.FAILED) for phase in _LIVE},
    **{(phase, _F.CANCEL_ASKED): _M(_OWNER, phase) for phase in (_S.READY, _S.RUNNING, _S.PAUSED)},
    **{(phase, _F.CANCELLED): _M(_OWNER, _S.CANCELLED) for phase in _LIVE},
}
SESSION = Machine("session", _S.DRAFT, TRANSITIONS)
