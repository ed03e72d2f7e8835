"""Requests as a holder's API shows them, once they are what a test waits for. Knows no test."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION


async def request_waits(running: Running, begins: str) -> dict[str, Any]:
    """The request, once it is said to wait for whom `begins` names."""
    for _ in range(6000):
        answer = await running.client.get(f"/v1/requests/{SESSION}")
        if answer.status_code == 200 and str(answer.json()["waiting_for"]).startswith(begins):
            return dict(answer.json())
        await asyncio.sleep(0.01)
    raise AssertionError(answer.text)
