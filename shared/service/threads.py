"""Work on threads, and event loops that wait for its end. Knows no service."""

from __future__ import annotations

import asyncio
from typing import Any


async def ended(work: asyncio.Future[Any]) -> None:
    """Until a thread's work has ended, however often whoever waits is cancelled meanwhile: what it uses must not go before it. Its result
    or error stays with `work`.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
