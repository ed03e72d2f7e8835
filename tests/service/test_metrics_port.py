"""Metrics at a port of their own are there and nowhere else, end with the service, and take no more of its descriptors than they may."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from shared.errors import ConfigurationError
from shared.service.app import create_service_app
from shared.service.logging import configure_logging
from shared.service.metrics_port import MAX_CONNECTIONS, served_apart
from shared.service.settings import ServiceSettings


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=100) as answer:
        return str(answer.read().decode())


def _address(log: io.StringIO) -> str:
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    return str(next(line["address"] for line in said if line["event"] == "metrics are served apart"))


async def test_metrics_are_at_their_own_port_only(tmp_path: Path) -> None:
    log = io.StringIO()
    configure_logging("info", "json", log)
    try:
        app = create_service_app("test", "1", settings=ServiceSettings(data_dir=tmp_path, metrics_port=0))
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://service") as client,
        ):
            assert (await client.get("/metrics")).status_code == 404
            address = _address(log)
            text = await asyncio.to_thread(_get, address)
    finally:
        configure_logging("warning", "json")
    assert 'gput_http_requests_total{method="GET",route="/metrics",status="404"} 1.0' in text
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(_get, address)


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with (
            pytest.raises(ConfigurationError, match="cannot be served"),
            served_apart(CollectorRegistry(), "127.0.0.1", other.getsockname()[1]),
        ):
            pass


def test_connections_that_say_nothing_take_no_more_places_than_there_are() -> None:
    """Each would hold a descriptor of the service for as long as a stranger likes, until its API could accept nobody."""
    log = io.StringIO()
    configure_logging("info", "json", log)
    try:
        with ExitStack() as stack:
            stack.enter_context(served_apart(CollectorRegistry(), "127.0.0.1", 0))
            address = _address(log)
            at = urlsplit(address)
            idle = [
                stack.enter_context(socket.create_connection((str(at.hostname), at.port or 0), timeout=30))
                for _ in range(MAX_CONNECTIONS + 20)
            ]
            assert _get(address) == "", "a scrape is answered all the same; this registry has nothing in it"
            for connection in idle[:20]:  # who has waited longest makes room; else this read would not come back
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
    finally:
        configure_logging("warning", "json")
