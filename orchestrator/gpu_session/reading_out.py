"""Reading the committed model out of the GPU in parts, and once more where it changed in the middle. Knows no file and no journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from orchestrator.gpu_session.life import CommandRefused
from shared.service.logging import get_logger

CHANGED = "committed-copy-changed"
_log = get_logger("orchestrator.reading_out")
_Read = TypeVar("_Read")


async def read_out(whole: Callable[[], Awaitable[_Read]]) -> _Read:
    """What `whole` makes of the model. The GPU looks at the committed copy before its first part and behind its last one: a bit that flips
    between the two is found by the second look, when some of that copy was read and it cannot be mended; from the start it can (law L8).

    Raises:
        CommandRefused: also the second time, so the GPU holds no copy that is what was committed. Otherwise whatever `whole` raises.
    """
    try:
        return await whole()
    except CommandRefused as error:
        if error.code != CHANGED:
            raise
        _log.warning("the committed copy changed while it was read; it is read once more", detail=error.detail)
    return await whole()
