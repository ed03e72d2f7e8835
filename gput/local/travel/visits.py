"""Cells of travelling: sessions in real processes whose visits carry so many bytes, the link between the virtual machines paced anew
every few visits. Knows the API's views and the links' counters only.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gput.bench.travelling import Cell, Traffic, Way, label, middle
from gput.client import AsyncClient
from gput.local.crowd import Crowd, Load
from gput.local.job import Say
from gput.local.life_bench import require_hope
from gput.local.travel.link import Link
from shared.claims.visit import MAX_CHUNK_BYTES
from shared.errors import JobFailed

HOLDERS = 3
WARM_UP = HOLDERS
"""Visits before the first that counts: each holder's first one is slower."""
COMPUTE = ("train", "validate")
ROUNDS = 300


@dataclass(frozen=True)
class Moment:
    """Where a session stood: visits closed, what had crossed the links."""

    closed: int
    crossed: tuple[Traffic, ...]


class Tour:
    """Three holders, an orchestrator, a GPU, and three links: holders ↔ orchestrator, holders → GPU, orchestrator → GPU."""

    def __init__(self, folder: Path, load: Load, say: Say) -> None:
        self._say, self._load = say, load
        self._between = Link(lambda: self._crowd.installation.services["orchestrator"].url)
        self._holder_gpu = Link(lambda: self._crowd.installation.services["agent"].url)
        self._orchestrator_gpu = Link(lambda: self._crowd.installation.services["agent"].url)
        self._folder = folder
        self._crowd: Crowd

    async def cells(self, rates: Sequence[float | None], visits: int) -> list[Cell]:
        """Every rate for each of the load's lengths, over at least so many visits each.

        Raises:
            JobFailed: a session did not go on. Unavailable: a process did not start.
        """
        for link in self._links:
            await link.open()
        tuning = {
            "public_url": self._between.url, "agent_public_url": self._holder_gpu.url,
            "agent_url": self._orchestrator_gpu.url,
        }  # fmt: skip
        self._crowd = Crowd(self._folder, ROUNDS * HOLDERS, HOLDERS, self._say, self._load, tuning)
        self._crowd.installation.bounce = False  # or the records would pass none of the links that are counted
        try:
            client = await self._crowd.open()
            found: list[Cell] = []
            for steps in sorted(self._load.steps):
                found += await self._session(client, steps, rates, visits)
            return found
        finally:
            await self._crowd.stop()
            for link in self._links:
                await link.close()

    @property
    def _links(self) -> tuple[Link, Link, Link]:
        return self._between, self._holder_gpu, self._orchestrator_gpu

    async def _session(
        self, client: AsyncClient, steps: int, rates: Sequence[float | None], visits: int
    ) -> list[Cell]:  # fmt: skip
        self._between.pace(None)
        session = await self._crowd.submit((steps,))
        await self._reach(client, session, WARM_UP)
        spans = []
        for rate in rates:
            self._say(f"travelling, {label(rate)}, {steps} steps a visit …")
            self._between.pace(rate)
            closed = (await client.session(session))["visits_closed"]
            first = await self._reach(client, session, closed + 1)  # the visit under way saw both rates
            spans.append((rate, first, await self._reach(client, session, first.closed + visits)))
        self._between.pace(None)
        await client.act(session, "cancel")
        await client.wait(session)
        listed = [one for one in await client.items(f"sessions/{session}/visits") if one["outcome"] == "closed"]
        return [_cell(rate, first, last, listed[first.closed - 1 : last.closed]) for rate, first, last in spans]

    async def _reach(self, client: AsyncClient, session: str, wanted: int) -> Moment:
        closed = await reach(client, session, wanted)
        return Moment(closed, tuple(link.traffic for link in self._links))


async def reach(client: AsyncClient, session: str, wanted: int) -> int:
    """Wait until so many visits have closed; how many have.

    Raises:
        JobFailed: the session does not go on, or ended before.
    """
    view = await client.session(session)
    while view["visits_closed"] < wanted:
        require_hope(view)
        if view["phase"] == "COMPLETED":
            raise JobFailed("the session ended before enough was measured", code="session-short")
        view = await client.session(session, wait=25, version=view["version"])
    return int(view["visits_closed"])


def _cell(rate: float | None, first: Moment, last: Moment, visits: Sequence[dict[str, Any]]) -> Cell:
    """`visits`: those that closed between the two moments, and the one before them."""
    count = last.closed - first.closed
    # By the clock, from one close to the next, so that nothing between two visits is forgotten; less its own training.
    costs = [now["closed_at"] - before["closed_at"] - _trained_s(now) for before, now in pairwise(visits)]
    crossed = (new - old for new, old in zip(last.crossed, first.crossed, strict=True))
    between, holder_gpu, orchestrator_gpu = (traffic / count for traffic in crossed)
    own = visits[1:]
    timers = [float(sum(one["timers"].values())) for one in own]
    return Cell(
        Way.TRAVELLING, rate, int(own[0]["length"]), count, max(0.0, statistics.median(costs)), between, holder_gpu,
        orchestrator_gpu,
        2 * _copy_records(int(own[0]["length"])), statistics.median(map(_trained_s, own)),
        statistics.median(timers), middle(costs), middle(timers),
    )  # fmt: skip


def _copy_records(length: int) -> int:
    """Records of a visit that brings so many bytes, each sealed by its holder and opened by the GPU: chunks, and one that closes."""
    return -(-length // MAX_CHUNK_BYTES) + 1


def _trained_s(visit: dict[str, Any]) -> float:
    return float(sum(visit["durations"].get(step, 0.0) for step in COMPUTE))
