"""Visits whose records are of 1, 2 and 4 MAC chains, by turns, for the ablation. Knows the API's views only.

Three installations stand side by side, because the orchestrator's setting says how many chains; one of them works at a time. Records go the
fastest way that there is, through the bounce buffer, where the cipher counts most.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from gput.bench.ablation import Chained
from gput.client import AsyncClient
from gput.local.crowd import Crowd
from gput.local.job import Say
from gput.local.lengths_bench import LARGE
from gput.local.travel.visits import HOLDERS, WARM_UP, reach
from shared.claims.visit import MAX_CHUNK_BYTES
from shared.crypto.chains import dependent_steps

CHAINS = (1, 2, 4)
TURNS = 3


async def chained(folder: Path, steps: int, times: int, say: Say) -> list[Chained]:
    """At least `times` visits of so many steps for each number of chains, in sessions taken by turns.

    Raises:
        JobFailed: a session did not go on. Unavailable: a process did not start.
    """
    load, each = replace(LARGE, steps=(steps,)), max(HOLDERS, -(-times // TURNS))
    seconds: dict[int, list[float]] = {number: [] for number in CHAINS}
    length = 0
    async with AsyncExitStack() as stack:
        crowds: dict[int, tuple[Crowd, AsyncClient]] = {}
        for number in CHAINS:
            tuning = {"copy_chains": number}
            crowd = Crowd(folder / f"chains-{number}", WARM_UP + each, HOLDERS, say, load, tuning)
            stack.push_async_callback(crowd.stop)
            crowds[number] = crowd, await crowd.open()
        for _ in range(TURNS):
            for number, (crowd, client) in crowds.items():
                say(f"visits of {number} MAC chains …" if number > 1 else "visits of one MAC chain …")
                found, length = await _session(crowd, client, steps, each)
                seconds[number] += found
    records = -(-length // MAX_CHUNK_BYTES) + 1
    record = min(MAX_CHUNK_BYTES, length)
    return [Chained(n, length, tuple(seconds[n]), dependent_steps(record, n), n * records) for n in CHAINS]


async def _session(crowd: Crowd, client: AsyncClient, steps: int, visits: int) -> tuple[list[float], int]:
    """The five timers of each visit but the first ones, summed; bytes of records of one."""
    session = await crowd.submit((steps,))
    await reach(client, session, WARM_UP + visits)
    await client.wait(session)
    listed = [one for one in await client.items(f"sessions/{session}/visits") if one["outcome"] == "closed"]
    return [float(sum(one["timers"].values())) for one in listed[WARM_UP:]], int(listed[0]["length"])
