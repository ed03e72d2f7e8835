"""Whoever counts a holder's visits may break; the visits are made all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.data_holder.conftest import Running
from tests.data_holder.test_holder_visits import visit


async def test_a_visit_that_cannot_be_counted_is_made_all_the_same(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def broken(report: Any) -> None:
        told.append(report.visit)
        raise RuntimeError("a bug in a metric")

    monkeypatch.setattr(running.holder.visits._facts, "_watch", broken)
    await running.approved_with_channel()
    for epoch in (1, 2):
        await visit(running, epoch)
        await running.until(lambda epoch=epoch: len(running.orchestrator.reports) == epoch)
    assert told == [report.visit for report in running.orchestrator.reports]
    await running.until(lambda: running.attempt_phase(2) == "REPORTED")
