"""Visits whose records are moved and never trained on, over each link, and the bare server beside them. Knows the stand
and the holder's parts.

This process is the holder: its own sealing, carriers and bounce buffer; agent, platform and the bare server are processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from data_holder.ahead import ReadAhead
from data_holder.bounce import BounceLink
from data_holder.carriers import PAGE, LinkName
from data_holder.commitments import Committed
from data_holder.datasets import RecordTree, open_dataset
from data_holder.links import GpuLink, LinkCounters
from data_holder.sealing import RecordSealer
from gput.bench.transfer_tables import Found, Transfer
from gput.local.job import Say, run_module
from gput.local.made_up import arrays
from gput.local.transfer.limits import PREPARE_BYTES, TIMEOUT_S, Bare, Limits, bare
from gput.local.transfer.memory_limit import ThroughMemory
from gput.local.transfer.one_core import Stages, cipher
from gput.local.transfer.stand import GPU, SESSION, Approved, Stand
from gput.local.transfer.watched import WatchedProvisioner
from shared.claims.archive import open_archive
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange
from shared.crypto.secret import Secret
from shared.errors import JobFailed
from shared.service.cycles import leave_out_what_is_there
from shared.service.http import Peers

SEED = 1
LOOK_S = 0.001
PROGRAM = "gput.local.transfer.program:source"
Order = Literal["sequential", "shuffled"]


@dataclass(frozen=True)
class Way:
    """How a row's visits go. `order`: of their records; in the file's order they are sealed where they lie. `read_ahead`: the proof is made
    and the first records are read before the visit, as a holder does between two. `sealed_ahead`: all is sealed before the GPU comes, as by
    a holder whose key came while the GPU was away; as much as there is room for.
    """

    order: Order
    link: LinkName
    read_ahead: bool = False
    sealed_ahead: bool = False


WAYS: Final = {
    "bounce": Way("shuffled", "bounce"),
    "prepared": Way("shuffled", "bounce", read_ahead=True),
    "straight": Way("sequential", "bounce", read_ahead=True),
    "ahead": Way("sequential", "bounce", read_ahead=True, sealed_ahead=True),
    "http": Way("shuffled", "http"),
    "http-straight": Way("sequential", "http", read_ahead=True),
    "http-ahead": Way("sequential", "http", read_ahead=True, sealed_ahead=True),
}
RECORDS: Final = "records.npy"


@dataclass(frozen=True)
class Data:
    """A holder's dataset with its tree and salt; each visit brings all of its records, in another order."""

    committed: Committed

    @property
    def approved(self) -> Approved:
        """What the grants name."""
        dataset = self.committed.dataset
        return Approved(self.committed.tree.root, dataset.records, dataset.record_bytes)

    def visit(self, start: int, way: Way) -> CursorRange:
        """The one that begins there: all records, or as many as a holder seals ahead."""
        count = self.approved.records
        if way.sealed_ahead:
            most = PREPARE_BYTES // (MAX_CHUNK_BYTES + PAGE) - 1  # the closing record has a place of its own
            count = min(count, max(1, most * MAX_CHUNK_BYTES // self.approved.record_bytes))
        return CursorRange(start=start, count=count, order=way.order, seed=SEED)


@contextmanager
def made_up(folder: Path, program: Path, mebibytes: int) -> Iterator[Data]:
    """So much data in a file, approved."""
    import numpy as np  # here: every command would pay for it

    manifest = open_archive(program.read_bytes()).manifest
    count = max(1, mebibytes * 2**20 // manifest.records.record_bytes)
    [values] = arrays(manifest.records, count, SEED).values()
    np.save(folder / RECORDS, values)
    salt, dataset = Secret(os.urandom(32)), open_dataset(folder / RECORDS, manifest.records, manifest.tokenizer)
    committed = Committed(dataset, RecordTree(dataset, salt.reveal(), folder / "trees", "bench"), salt)
    try:
        yield Data(committed)
    finally:
        committed.close()


class Mover:
    """Visit after visit of the same data."""

    def __init__(self, stand: Stand, peers: Peers, data: Data) -> None:
        self._stand, self._data, self._position, self._ahead = stand, data, 0, ReadAhead(PREPARE_BYTES)
        self._link = GpuLink(peers.peer(stand.agent_url, "GPU agent"), LinkCounters())

    async def moved(self, way: Way, times: int, limits: Limits) -> list[Transfer]:
        """So many transfers, after one that only warms up.

        Raises:
            JobFailed: the records went another way, or the GPU published something else.
        """
        bounce = BounceLink(self._stand.bounce_socket if way.link == "bounce" else None, PREPARE_BYTES)
        length = self._data.visit(0, way).count * self._data.approved.record_bytes
        found = []
        try:
            before = await limits.now(length, http=way.link == "http")
            for _ in range(times + 1):
                seconds, moved_s, processor_s = await self._once(way, bounce)
                after = await limits.now(length, http=way.link == "http")
                around = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
                found.append(Transfer(length, seconds, moved_s, processor_s, *around))
                before = after
            return found[1:]
        finally:
            bounce.close()
            await self._ahead.drop(SESSION)

    async def _once(self, way: Way, bounce: BounceLink) -> tuple[float, float, float]:
        """Seconds until published, until moved, and of all processors."""
        committed, cursor = self._data.committed, self._data.visit(self._position, way)
        grant, key = await self._stand.granted(self._data.approved, cursor)
        self._position += cursor.count
        await bounce.ready()
        await self._ahead.settled(SESSION)
        if not way.sealed_ahead:
            await self._stand.arrive()
        spent, began = self._processor_s(), time.perf_counter()
        ready = await self._ahead.take(SESSION, committed, grant)
        sealer = RecordSealer(grant, key, committed.dataset, ready.membership, os.urandom(32), ready.chunks)
        provisioner = WatchedProvisioner(self._link, bounce, PREPARE_BYTES, sealer.total)
        sending = asyncio.create_task(provisioner.provision(grant, GPU, sealer))
        if way.sealed_ahead:
            async with asyncio.timeout(TIMEOUT_S):
                while not sending.done() and sealer.sealed <= sealer.total:  # noqa: ASYNC110  # its thread tells nobody
                    await asyncio.sleep(LOOK_S)
            spent, began = self._processor_s(), time.perf_counter()
            await self._stand.arrive()
        done = await sending
        ended = time.perf_counter()
        spent = self._processor_s() - spent
        if way.read_ahead:
            self._ahead.begin(SESSION, committed, grant)
        if (done.link, done.commitment) != (way.link, await self._stand.returned(grant)):
            raise JobFailed("the records went another way, or the GPU published others", code="records-differ")
        return ended - began, provisioner.moved_at - began, spent

    def _processor_s(self) -> float:
        return time.process_time() + self._stand.processor_s()


async def measure(folder: Path, mebibytes: int, times: int, say: Say) -> Found:
    """Everything, in one run.

    Raises:
        JobFailed: the GPU published other records than were sent. Unavailable: a process did not start.
    """
    program = folder / "program.gput"
    say("making data and program …")
    await run_module("gput", "program", "build", PROGRAM, "-o", str(program))
    stand = Stand(folder / "services", program)
    with made_up(folder, program, mebibytes) as data:
        try:
            await stand.start(data.approved.records * data.approved.record_bytes)
            leave_out_what_is_there()  # as the holder's service does
            async with Peers(timeout_s=TIMEOUT_S) as peers, bare(folder, peers, folder / RECORDS) as plain:
                links = await _by_ways(Mover(stand, peers, data), plain, times, say)
        finally:
            await stand.stop()
        say("the cipher and each stage alone …")
        core, shuffled = cipher(), data.visit(0, WAYS["bounce"])
        stages = Stages(data.committed, shuffled).measure()
        return Found(shuffled.count * data.approved.record_bytes, core.seal, core.open, links, stages)


async def _by_ways(mover: Mover, plain: Bare, times: int, say: Say) -> dict[str, list[Transfer]]:
    found = {}
    with ThroughMemory() as memory:
        for name, way in WAYS.items():
            say(f"{name} …")
            found[name] = await mover.moved(way, times, Limits(plain, memory))
    return found
