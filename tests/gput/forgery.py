"""Whoever answers a person's commands in a service's place, as it likes, and what it hears. Knows no test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from gput.client import AsyncClient
from shared.service.http import Peers

ORCHESTRATOR, HOLDER = "http://orchestrator.test", "http://holder.test"
Forged = Callable[[httpx2.Request], tuple[int, Any]]


class Forger:
    """Answers with what `answer` makes of a request: status and JSON. `heard`: every request, as `METHOD /path`."""

    def __init__(self, answer: Forged) -> None:
        self._answer = answer
        self.heard: list[str] = []

    @property
    def told(self) -> list[str]:
        """What it heard that was to change something."""
        return [line for line in self.heard if not line.startswith("GET ")]

    def peers(self, **_more: Any) -> Peers:
        return Peers(transports={url: httpx2.MockTransport(self._answered) for url in (ORCHESTRATOR, HOLDER)})

    def _answered(self, request: httpx2.Request) -> httpx2.Response:
        self.heard.append(f"{request.method} {request.url.raw_path.decode()}")
        status, body = self._answer(request)
        kind = "application/json" if status < 400 else "application/problem+json"
        return httpx2.Response(status, content=json.dumps(body).encode(), headers={"content-type": kind})


@pytest.fixture
def forger(monkeypatch: pytest.MonkeyPatch) -> Callable[[Forged], Forger]:
    """Puts a forger in the place of orchestrator and holder service, which the environment names."""

    def put(answer: Forged) -> Forger:
        found = Forger(answer)

        def client(url: str, key: Any, **more: Any) -> AsyncClient:
            return AsyncClient(url, key, peers=found.peers(), **more)

        monkeypatch.setattr("gput.client.AsyncClient", client)
        monkeypatch.setattr("gput.commands.operator.Peers", found.peers)
        for name, value in {"URL": ORCHESTRATOR, "HOLDER_URL": HOLDER}.items():
            monkeypatch.setenv(f"GPUT_{name}", value)
        return found

    return put
