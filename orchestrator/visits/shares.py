"""The GPU's share of a visit's traffic key (travel mode `direct`): believed, and named by the grant beside the holder's.

The orchestrator sees both shares and can agree nothing with either. Knows no holder's address and no HTTP route.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run
from orchestrator.visits.statements import stated
from shared.attestation.one_time_keys import VerifiedOneTimeKey
from shared.attestation.shares import share_of
from shared.claims.visit import Shares
from shared.errors import VerificationFailed


@dataclass(frozen=True)
class DrawnShares:
    """Both shares as the grant names them, and the GPU's signed statement of its own, for the holder."""

    shares: Shares | None
    statement: bytes


NO_SHARES = DrawnShares(None, b"")


def check_shares(run: Run, visit: VisitState, one_time_key: VerifiedOneTimeKey, statement: bytes) -> DrawnShares:
    """What the GPU says it drew for this visit's epoch and holder.

    Raises:
        VerificationFailed: the holder sent no share, or the GPU states something else. Conflict: as `stated`.
    """
    if one_time_key.share is None:
        raise VerificationFailed("The holder's one-time key came without a share", code="one-time-key-share")
    if run.state.device is None:
        raise VerificationFailed("The GPU has no certified statement key", code="no-statement-key")
    said = share_of(
        stated(run, statement), device=run.state.device, session=run.state.id, life=run.life.number, epoch=visit.epoch,
        holder=visit.holder,
    )  # fmt: skip
    return DrawnShares(Shares(holder=one_time_key.share.hex(), gpu=said.share), statement)
