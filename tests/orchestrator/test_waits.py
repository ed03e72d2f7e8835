"""For whom a session waits that has no runner: its GPU, where another session has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.views import waiting_for
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
