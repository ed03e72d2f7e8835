"""For whom a session waits that has no runner: its GPU, where another session has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from structlog.testing import CapturingLogger

from orchestrator.runner import supervisor as supervisors
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.views import waiting_for
from shared.errors import GputError, Unavailable
from shared.names import SessionPhase
from tests.orchestrator.orchestrator_samples import SESSION

OTHER = "s_bbbbbbbbbbbbbbbb"
CASES: list[tuple[SessionPhase, str | None, list[str]]] = [
    (SessionPhase.READY, None, ["gpu-0"]),
    (SessionPhase.READY, SESSION, ["gpu-0"]),
    (SessionPhase.READY, OTHER, [f"gpu-0 (in use by {OTHER})"]),
    # It ran, its journal could not be read for a while, and its lease went to the next one.
    (SessionPhase.RUNNING, OTHER, [f"gpu-0 (in use by {OTHER})"]),
    (SessionPhase.RUNNING, SESSION, []),
    (SessionPhase.RUNNING, None, []),
    (SessionPhase.PAUSED, OTHER, ["alice (paused)"]),
    (SessionPhase.COMPLETED, OTHER, []),
]


def house() -> Any:
    return Mock(catalogue=SimpleNamespace(away=set()))


@pytest.mark.parametrize(("phase", "leased_to", "expected"), CASES)
async def test_for_whom_a_session_without_a_runner_waits(
    phase: SessionPhase, leased_to: str | None, expected: list[str]
) -> None:
    supervisor = Supervisor(house())
    if leased_to is not None:
        supervisor._leases["gpu-0"] = leased_to
    book: Any = SimpleNamespace(durable=SimpleNamespace(id=SESSION, gpu="gpu-0", phase=phase, owner="alice"))
    assert supervisor.awaited.by(book) == expected
    stored = {"id": SESSION, "phase": phase.value, "gpu": "gpu-0", "waiting_for": waiting_for(book.durable)}
    assert supervisor.awaited.by_row(stored) == expected


async def test_sessions_that_cannot_be_looked_for_are_said_once_for_each_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away, back = Unavailable("away", code="database-unreachable"), None
    reasons: list[GputError | None] = [away, away, back, away, Unavailable("full", code="disk-full")]
    catalogue = Mock(
        away=set(), doubtful=[], live=AsyncMock(side_effect=[[] if one is back else one for one in reasons])
    )
    supervisor = Supervisor(Mock(catalogue=catalogue))
    logged = CapturingLogger()
    monkeypatch.setattr(supervisors, "_log", logged)
    for _ in reasons:
        await supervisor.look()
    assert [line["code"] for _, _, line in logged.calls] == [
        "database-unreachable",
        "database-unreachable",
        "disk-full",
    ]
    assert catalogue.doubts.notify.call_count == 4
