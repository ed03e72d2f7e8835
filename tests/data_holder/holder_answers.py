"""Answers that a test puts in the orchestrator's place, one path at a time. Knows no test."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import problem

Answer = Callable[[int], httpx2.Response | None]
"""What is answered to the n-th request (from 1 on); None: what the orchestrator would say."""
HEALING: dict[str, Callable[[], httpx2.Response]] = {
    "a fault there": lambda: problem(500, "Internal error", "internal"),
    "a late signature": lambda: problem(401, "Not authenticated", "signature-expired"),
    "too much at once": lambda: problem(429, "Too many", "busy"),
    "a page of maintenance": lambda: httpx2.Response(200, content=b"<html>back soon</html>"),
    "nothing": lambda: httpx2.Response(200),
}
"""Answers that say nothing of what was asked or told, and are over by the next try."""


def answering(running: Running, monkeypatch: pytest.MonkeyPatch, part: str, answer: Answer) -> list[str]:
    """Answer what is asked for at paths with this part in them; every such request from now on, as `METHOD path`."""
    asked, honest = list[str](), running.orchestrator._answer

    async def answered(request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if part not in path:
            return await honest(request, path, body)
        asked.append(f"{request.method} {path}")
        return answer(len(asked)) or await honest(request, path, body)

    monkeypatch.setattr(running.orchestrator, "_answer", answered)
    return asked


def once(running: Running, monkeypatch: pytest.MonkeyPatch, part: str, bad: str) -> list[str]:
    """As `answering`: the first such request by what `HEALING` calls `bad`, every other honestly."""
    return answering(running, monkeypatch, part, lambda number: HEALING[bad]() if number == 1 else None)
