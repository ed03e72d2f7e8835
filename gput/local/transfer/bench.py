"""Visits whose records are moved and never trained on, over each link, and the bare server beside them. Knows the stand
and the holder's parts.

This process is the holder: its own sealing, carriers and bounce buffer; agent, platform and the bare server are processes of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_holder.ahead import ReadAhead
from data_holder.bounce import BounceLink
from data_holder.carriers import HttpCarrier
from data_holder.commitments import Committed
from data_holder.datasets import RecordTree, open_dataset
from data_holder.gpu_channel import Provisioner
from data_holder.links import Answered, GpuLink, LinkCounters
from data_holder.ringing import Rung
from data_holder.sealing import RecordSealer
from data_holder.settings import HolderSettings
from gput.bench.transfer_tables import Found, Transfer
from gput.local.installation import to_toml
from gput.local.job import Say, run_module
from gput.local.made_up import arrays
from gput.local.process import Service
from gput.local.transfer.limits import Stages, cipher
from gput.local.transfer.memory_limit import ThroughMemory
from gput.local.transfer.stand import GPU, HOLDER, SESSION, Approved, Stand
from shared.claims.archive import open_archive
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange
from shared.crypto.secret import Secret
from shared.errors import JobFailed
from shared.names import holder_port
from shared.service.clock import system_clock
from shared.service.http import PeerClient, Peers
from shared.wire.bounce import Bounced
from shared.wire.copy import DATA, TAG_BYTES, CopyHeader, pack_header

TIMEOUT_S, SEED = 60.0, 1
LINKS = ("bounce", "prepared", "straight", "http", "http-straight")
"""`prepared`: by bounce buffer, the visit's first records and its proof read ahead, as a holder does between two visits. `straight`: the
records in the file's order, sealed where they lie; the others are shuffled."""
PREPARED = ("prepared", "straight", "http-straight")
PROGRAM = "gput.local.transfer.program:source"
PREPARE_BYTES = int(HolderSettings.model_fields["prepare_bytes"].default)


@dataclass(frozen=True)
class Data:
    """A holder's dataset with its tree and salt; each visit brings all of its records, in another order."""

    committed: Committed

    @property
    def approved(self) -> Approved:
        """What the grants name."""
        dataset = self.committed.dataset
        return Approved(self.committed.tree.root, dataset.records, dataset.record_bytes)

    @property
    def length(self) -> int:
        """Bytes of a visit."""
        return self.approved.records * self.approved.record_bytes

    def cursor(self, visit: int, *, straight: bool = False) -> CursorRange:
        """Of the visit of this number, from 0."""
        count = self.approved.records
        order: Literal["sequential", "shuffled"] = "sequential" if straight else "shuffled"
        return CursorRange(start=visit * count, count=count, order=order, seed=SEED)


@contextmanager
def made_up(folder: Path, program: Path, mebibytes: int) -> Iterator[Data]:
    """So much data in a file, approved."""
    import numpy as np  # here: every command would pay for it

    manifest = open_archive(program.read_bytes()).manifest
    count = max(1, mebibytes * 2**20 // manifest.records.record_bytes)
    [values] = arrays(manifest.records, count, SEED).values()
    np.save(folder / "records.npy", values)
    salt, dataset = Secret(os.urandom(32)), open_dataset(folder / "records.npy", manifest.records, manifest.tokenizer)
    committed = Committed(dataset, RecordTree(dataset, salt.reveal(), folder / "trees", "bench"), salt)
    try:
        yield Data(committed)
    finally:
        committed.close()


class WatchedLink(GpuLink):
    """The holder's link, which tells when the last record before the closing one was accepted: there the data are in GPU memory, every tag
    verified, and publication begins. So the closing record goes by a request of its own."""

    def __init__(self, peer: PeerClient) -> None:
        super().__init__(peer, LinkCounters())
        self._left, self.moved_at = 0, 0.0

    def expect(self, records: int) -> None:
        """So many before the closing one."""
        self._left = records

    async def leave(
        self, door: str, gpu: str, port: str, *records: memoryview, timeout_s: float, wait_s: float = 0
    ) -> Answered:
        """See `GpuLink.leave`."""
        if self._left < len(records) > 1:
            await super().leave(door, gpu, port, *records[:-1], timeout_s=timeout_s, wait_s=wait_s)
            self.accepted(len(records) - 1, time.perf_counter())
            records = records[-1:]
        answer = await super().leave(door, gpu, port, *records, timeout_s=timeout_s, wait_s=wait_s)
        self.accepted(len(records), time.perf_counter())
        return answer

    async def bounced(self, gpu: str, port: str, places: Bounced, *, timeout_s: float, wait_s: float = 0) -> Answered:
        """See `GpuLink.bounced`."""
        named = places.places
        if self._left < len(named) > 1:
            first = places.model_copy(update={"places": named[:-1]})
            await super().bounced(gpu, port, first, timeout_s=timeout_s, wait_s=wait_s)
            self.accepted(len(named) - 1, time.perf_counter())
            places = places.model_copy(update={"places": named[-1:]})
        answer = await super().bounced(gpu, port, places, timeout_s=timeout_s, wait_s=wait_s)
        self.accepted(len(places.places), time.perf_counter())
        return answer

    def accepted(self, records: int, at: float) -> None:
        """So many more records were, at this time (`time.perf_counter`)."""
        if records and self._left > 0:
            self._left, self.moved_at = self._left - records, at


class WatchedProvisioner(Provisioner):
    """Tells the watched link of what came by doorbell, where the closing record always has a ring of its own."""

    def __init__(self, link: WatchedLink, bounce: BounceLink) -> None:
        super().__init__(link, system_clock, prepare_bytes=PREPARE_BYTES, bounce=bounce)
        self._watched = link

    def _rung(self, acknowledged: Sequence[Rung]) -> None:
        super()._rung(acknowledged)
        for one in acknowledged:
            self._watched.accepted(len(one.batch), one.ended)


class Mover:
    """Visit after visit of the same data."""

    def __init__(self, stand: Stand, peers: Peers, data: Data) -> None:
        self._stand, self._data, self._visits, self._ahead = stand, data, 0, ReadAhead(PREPARE_BYTES)
        self._link = WatchedLink(peers.peer(stand.agent_url, "GPU agent"))

    async def moved(self, link: str, times: int, limits: Limits) -> list[Transfer]:
        """So many transfers over a link, after one that only warms up.

        Raises:
            JobFailed: the records went another way, or the GPU published something else.
        """
        bounce = BounceLink(None if "http" in link else self._stand.bounce_socket, PREPARE_BYTES)
        found = []
        try:
            before = await limits.now(link)
            for _ in range(times + 1):
                seconds, moved_s, processor_s = await self._once(link, bounce)
                after = await limits.now(link)
                around = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
                found.append(Transfer(seconds, moved_s, processor_s, *around))
                before = after
            return found[1:]
        finally:
            bounce.close()
            await self._ahead.drop(SESSION)

    async def _once(self, link: str, bounce: BounceLink) -> tuple[float, float, float]:
        """Seconds until published, until moved, and of all processors."""
        committed = self._data.committed
        cursor = self._data.cursor(self._visits, straight="straight" in link)
        grant, key = await self._stand.granted(self._data.approved, cursor)
        self._visits += 1
        await bounce.ready()
        await self._ahead.settled(SESSION)
        spent, began = self._processor_s(), time.perf_counter()
        ready = await self._ahead.take(SESSION, committed, grant)
        sealer = RecordSealer(grant, key, committed.dataset, ready.membership, os.urandom(32), ready.chunks)
        self._link.expect(sealer.total)
        done = await WatchedProvisioner(self._link, bounce).provision(grant, GPU, sealer)
        ended = time.perf_counter()
        spent = self._processor_s() - spent
        if link in PREPARED:
            self._ahead.begin(SESSION, committed, grant)
        if (done.link, done.commitment) != ("http" if "http" in link else "bounce", await self._stand.returned(grant)):
            raise JobFailed("the records went another way, or the GPU published others", code="records-differ")
        return ended - began, self._link.moved_at - began, spent

    def _processor_s(self) -> float:
        return time.process_time() + self._stand.processor_s()


class Limits:
    """What cannot be beaten, as the machine is at the moment. `bare`: seconds of one visit's bytes to the bare server."""

    def __init__(self, length: int, bare: Callable[[], Awaitable[float]], memory: ThroughMemory) -> None:
        self._length, self._bare, self._memory = length, bare, memory

    async def now(self, link: str) -> tuple[float, float]:
        """Bytes a second: of the link, and from memory to memory."""
        core = cipher(1)
        limit = self._length / await self._bare() if "http" in link else min(core.seal, core.open)
        return limit, self._memory.rate()


@asynccontextmanager
async def bare(folder: Path, peers: Peers, length: int) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Seconds in which the same server and client move as many bytes, in requests of the same size, unsealed."""
    config = folder / "plain.toml"
    config.write_text(to_toml({"die_with_parent": True, "log_format": "json", "data_dir": folder / "plain"}))
    server = Service("plain", ["-m", "gput.local.transfer.plain", "--config", str(config)], {}, folder / "plain.log")
    await server.start()
    try:
        link, port = GpuLink(peers.peer(server.url, "the bare server"), LinkCounters()), holder_port(HOLDER)
        record = memoryview(
            pack_header(CopyHeader(DATA, 1, 1, 0, 1, MAX_CHUNK_BYTES)) + bytes(MAX_CHUNK_BYTES + TAG_BYTES)
        )
        most = min(HttpCarrier.limit, PREPARE_BYTES // len(record) // 2)  # as many at once as a holder has

        async def once() -> float:
            began = time.perf_counter()
            for at in range(0, max(1, length // MAX_CHUNK_BYTES), most):
                count = min(most, length // MAX_CHUNK_BYTES - at)
                await link.leave("copy", GPU, port, *[record] * max(1, count), timeout_s=TIMEOUT_S)
            return time.perf_counter() - began

        await once()
        yield once
    finally:
        await server.stop()


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
            await stand.start(data.length)
            async with Peers(timeout_s=TIMEOUT_S) as peers, bare(folder, peers, data.length) as plain:
                links = await _by_links(Mover(stand, peers, data), data.length, plain, times, say)
        finally:
            await stand.stop()
        say("the cipher and each stage alone …")
        core = cipher()
        return Found(data.length, core.seal, core.open, links, Stages(data.committed, data.cursor(0)).measure())


async def _by_links(
    mover: Mover, length: int, plain: Callable[[], Awaitable[float]], times: int, say: Say
) -> dict[str, list[Transfer]]:
    links = {}
    with ThroughMemory() as memory:
        for link in LINKS:
            say(f"{link} …")
            links[link] = await mover.moved(link, times, Limits(length, plain, memory))
    return links
