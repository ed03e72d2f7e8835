"""A visit up to its report, and what the holder says of a receipt. Knows no test."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.wire.visit import OfferDocument, VisitReport
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION, visit_key


async def visited(running: Running) -> tuple[OfferDocument, VisitReport]:
    await running.approved_with_channel()
    made, document = running.orchestrator.make_offer(visit_key())
    running.gpu.install(document, visit_key())
    running.orchestrator.send_offer(made)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    return document, running.orchestrator.reports[0]


async def told(running: Running, index: int) -> dict[str, Any]:
    """What the holder says of the receipt of a leaf, once it has it."""
    for _ in range(400):
        answer = await running.client.get(f"/v1/receipts/{SESSION}/{index}")
        if answer.status_code == 200:
            return dict(answer.json())
        await asyncio.sleep(0.005)
    raise AssertionError(f"no receipt was stored of leaf {index}")
