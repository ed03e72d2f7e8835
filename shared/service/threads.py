"""Work on threads, and event loops that wait for its end. Knows no service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(act: Callable[..., T], *arguments: Any) -> T:
    """What `act` gives, on a thread: for what would keep the event loop from everybody else. It has ended when this returns, also where
    whoever waits is cancelled. What stands in the context (for whom this is done, in logs) stands there too. Raises: what `act` raises.
    """
    work = asyncio.get_running_loop().run_in_executor(None, copy_context().run, act, *arguments)
    try:
        await ended(work)
    except asyncio.CancelledError:
        work.exception()  # nobody will ask for it any more
        raise
    return work.result()


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
