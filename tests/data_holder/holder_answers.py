"""Answers that a test puts in the orchestrator's place, one path at a time. Knows no test."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from tests.data_holder.conftest import Running

Answer = Callable[[int], httpx2.Response | None]
"""What is answered to the n-th request (from 1 on); None: what the orchestrator would say."""


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
