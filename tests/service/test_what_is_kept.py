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


def _kept(act: Callable[[int], object], *files: str) -> int:
    """Blocks of memory, taken in `files`, that stay after `act` was called many times with numbers of its own. Elsewhere other tests'
    threads may still be at work."""
    act(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, MANY):
            act(number)
        gc.collect()
        found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, name) for name in files])
        return sum(row.count for row in found.statistics("filename"))
    finally:
        tracemalloc.stop()


def test_a_reports_words_are_not_kept() -> None:
    told = json.dumps(examples.REPORT)
    visit = examples.REPORT["visit"]
    assert told.count(visit) == 1

    def read(number: int) -> object:
        return VisitReport.model_validate_json(told.replace(visit, f"v_{number:016}"))

    assert _kept(read, "*/pydantic/main.py") < FEW


def test_addresses_of_visits_are_not_kept() -> None:
    def call(number: int) -> object:
        return _address("http://127.0.0.1:9", f"/v1/visits/v_{number:016}/offer")

    assert _kept(call, "*/httpx2/*", "*/shared/service/http.py") < 64 * 16
