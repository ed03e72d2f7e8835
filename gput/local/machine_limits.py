"""What this machine takes for the two things every step of a visit is made of: a durable write and a round trip. Knows no visit."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from shared.service.http import Peers

TIMES, IDLE_S, PAGE = 40, 0.06, 4096
NAME = "sync-probe"


@dataclass(frozen=True)
class Limits:
    """Milliseconds, medians: one write of a page made durable right after another, and after a pause as long as a short training;
    one call of a service that does nothing, over the product's own client and server."""

    sync_ms: float
    sync_idle_ms: float
    echo_ms: float

    def rows(self) -> list[dict[str, float | str]]:
        """For people."""
        return [
            {"limit": "a durable write after another", "median_ms": round(self.sync_ms, 3)},
            {"limit": f"a durable write after {IDLE_S * 1e3:.0f} ms without", "median_ms": round(self.sync_idle_ms, 3)},
            {"limit": "a call that does nothing", "median_ms": round(self.echo_ms, 3)},
        ]

    def named(self) -> dict[str, float]:
        """As figures."""
        return {
            "limit.sync_ms": round(self.sync_ms, 4), "limit.sync_idle_ms": round(self.sync_idle_ms, 4),
            "limit.echo_ms": round(self.echo_ms, 4),
        }  # fmt: skip


async def limits(folder: Path, url: str) -> Limits:
    """Of the disk that `folder` lies on, and of the service at `url`, while nothing else goes on.

    Raises:
        Unavailable: the service does not answer. OSError: the disk takes nothing.
    """
    echo_ms = await _echo(url)
    sync_ms, sync_idle_ms = await asyncio.to_thread(lambda: (_sync(folder, 0.0), _sync(folder, IDLE_S)))
    return Limits(sync_ms, sync_idle_ms, echo_ms)


def _sync(folder: Path, pause_s: float) -> float:
    path, page, found = folder / NAME, os.urandom(PAGE), []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.ftruncate(descriptor, PAGE * TIMES)  # as a database's log, which is written over
        os.fsync(descriptor)
        for number in range(TIMES):
            time.sleep(pause_s)
            began = time.perf_counter()
            os.pwrite(descriptor, page, number * PAGE)
            os.fdatasync(descriptor)
            found.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(found) * 1e3


async def _echo(url: str) -> float:
    found = []
    async with Peers(timeout_s=30.0) as peers:
        peer = peers.peer(url, "service")
        for _ in range(TIMES):
            began = time.perf_counter()
            await peer.get_json("/livez")
            found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e3
