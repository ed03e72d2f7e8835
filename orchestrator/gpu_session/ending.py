"""The end of a session on its GPU: nothing of it is left there. Knows no journal and no visit."""

from __future__ import annotations

from orchestrator.gpu_session.life import CommandRefused, GpuLife
from shared.service.logging import get_logger
from shared.wire.gpu import EndSession

UNCOUNTED = "boot-counter"
_log = get_logger("orchestrator.ending")


async def end_session(life: GpuLife) -> None:
    """The GPU is empty, and this life over. It is so, too, where the GPU could not count it (its agent's disk is full, mostly): it says so
    behind the end, and wipes itself once more, counted, for whoever opens it next. So whoever means to go on must have written down before
    that nothing is expected there: the boot counter need not tell.

    Raises:
        CommandRefused, VerificationFailed, Unavailable, Conflict: as `GpuLife.batch`; nobody knows what the GPU holds.
    """
    try:
        await life.batch([EndSession()])
    except CommandRefused as error:
        if error.code != UNCOUNTED:
            raise
        _log.warning("the GPU is empty, but could not count it", code=error.code, detail=error.detail)
