"""A holder's operator in a world. Knows the holder's own API only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from tests.world.world_tasks import PATIENCE_S, Patience
from tests.world.world_wire import Link, Wire


class AsyncOperator:
    """Calls to a holder's own API with its operator's token."""

    def __init__(self, wire: Wire, holder: str, folder: Path, url: str) -> None:
        token = (folder / "operator.token").read_text().strip()
        self._http = httpx2.AsyncClient(
            transport=Link(wire, "operator", holder),
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=20,
        )

    async def get(self, path: str) -> Any:
        answer = await self._http.get(f"/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def say(self, path: str, body: Any, method: str = "POST") -> httpx2.Response:
        return await self._http.request(method, f"/v1/{path}", json=body)

    async def post(self, path: str, body: Any, expect: int = 200) -> Any:
        patience = Patience(PATIENCE_S)
        while "/problems/journal-locked" in (answer := await self.say(path, body)).text and expect != 503:
            assert not patience.over, answer.text  # it has just started, and its keys are still on their way
            await asyncio.sleep(0.01)
        assert answer.status_code == expect, answer.text
        return answer.json()

    async def request(self, session: str, seconds: float = PATIENCE_S, *, phase: str | None = None) -> Any:
        """The approval request, once it has arrived; with `phase`, once the holder has heard that the session ended so."""
        patience, path = Patience(seconds), f"/v1/requests/{session}"
        while (answer := await self._http.get(path)).status_code != 200 or phase not in (None, answer.json()["phase"]):
            assert not patience.over, answer.text
            await asyncio.sleep(0.01)
        return answer.json()

    async def decide(self, session: str, verb: str, **fields: Any) -> Any:
        """approve, refuse or veto what is shown."""
        shown = await self.request(session)
        return await self.post(f"requests/{session}/{verb}", {"manifest": shown["manifest"], **fields})
