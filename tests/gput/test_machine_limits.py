"""What a machine takes for a durable write and a call: measured for real, and kept as figures that the bench defines."""

from __future__ import annotations

from pathlib import Path

import pytest

from gput.bench.figures import figures
from gput.local.machine_limits import IDLE_S, NAME, TIMES, limits
from shared.errors import GputError
from tests.service.http_peer import peer, saying

ALIVE = b'{"status": "alive"}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ALIVE)


async def test_both_are_measured_and_nothing_stays(tmp_path: Path) -> None:
    asked: list[bytes] = []
    async with peer(saying(HEAD + ALIVE, asked=asked)) as service:
        found = await limits(tmp_path, service.url)
    assert min(found.sync_ms, found.sync_idle_ms, found.echo_ms) > 0
    assert found.sync_idle_ms < TIMES * IDLE_S * 1e3, "the pauses themselves are not counted"
    assert len(asked) == TIMES
    assert all(request.startswith(b"GET /livez ") for request in asked)
    assert not (tmp_path / NAME).exists()


async def test_figures_are_defined_and_are_what_is_shown(tmp_path: Path) -> None:
    async with peer(saying(HEAD + ALIVE)) as service:
        found = await limits(tmp_path, service.url)
    kept = figures("visit", [found.named()])
    assert {figure.unit for figure in kept.values()} == {"ms"}
    assert [row["median_ms"] for row in found.rows()] == pytest.approx(list(found.named().values()), abs=1e-3)


async def test_a_service_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with pytest.raises(GputError):
        await limits(tmp_path, "http://127.0.0.1:9")
