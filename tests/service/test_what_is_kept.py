"""What a process keeps of messages that came and went: nothing that a long session fills. Knows one message and the client of a peer."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable

from orchestrator.api import examples
from shared.service.http import _address
from shared.wire.visit import VisitReport

MANY, FEW = 2000, 100


def _kept(act: Callable[[int], object]) -> int:
    """Blocks of memory that stay after `act` was called many times with numbers of its own."""
    act(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, MANY):
            act(number)
        gc.collect()
        return sum(row.count for row in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()


def test_a_reports_words_are_not_kept() -> None:
    told = json.dumps(examples.REPORT)
    visit = examples.REPORT["visit"]
    assert told.count(visit) == 1
    assert _kept(lambda number: VisitReport.model_validate_json(told.replace(visit, f"v_{number:016}"))) < FEW


def test_addresses_of_visits_are_not_kept() -> None:
    assert _kept(lambda number: _address("http://127.0.0.1:9", f"/v1/visits/v_{number:016}/offer")) < 64 * 16
