"""What every task of this event loop waits for, as text: for a test that gave up waiting itself. Knows no service."""

from __future__ import annotations

import asyncio
from typing import Any


def waiting() -> str:
    """A line per task: its name and the chain of coroutines that it stands in, outermost first."""
    return "\n".join(sorted(f"{task.get_name()}: {_chain(task.get_coro())}" for task in asyncio.all_tasks()))


def _chain(coroutine: Any) -> str:
    found = []
    while coroutine is not None and getattr(coroutine, "cr_frame", None) is not None:
        found.append(f"{coroutine.__qualname__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(found)
