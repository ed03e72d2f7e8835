"""A rehearsal outlasts an orchestrator that does not answer for a while, as everybody who waits for a session does."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from gput.local.rehearsal import ended
from shared.errors import Unavailable
from tests.gput.test_other_answers import SESSION, client_of

PROBLEM = {"code": "not-ready", "title": "not ready", "status": 503, "detail": "it starts"}


def orchestrator(*phases: str | None) -> Any:
    """Of one session, which is in one phase after the other; None: it does not answer then."""
    left = list(phases)

    def answered(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/approvals"):
            return httpx2.Response(200, json={"items": [], "next": None})
        phase = left.pop(0) if len(left) > 1 else left[0]
        if phase is None:
            return httpx2.Response(503, json=PROBLEM, headers={"content-type": "application/problem+json"})
        return httpx2.Response(200, json={"id": SESSION, "phase": phase, "version": 1, "holders": []})

    return answered


async def test_a_late_answer_does_not_end_it() -> None:
    late = ("RUNNING", None, "RUNNING", None, "COMPLETED")
    async with client_of(orchestrator(*late)) as client:
        view, refusals = await ended(client, SESSION)
    assert (view["phase"], refusals) == ("COMPLETED", {})


async def test_one_that_stays_away_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gput.api.PATIENCE_S", 0.0)
    async with client_of(orchestrator("RUNNING", None)) as client:
        with pytest.raises(Unavailable):
            await ended(client, SESSION)
