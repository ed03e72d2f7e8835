"""What the next visit needs and does not wait for its key: which records it brings, their leaves and proof, their first bytes.

A visit begins where the one before it ended, so its cursor is known before it is offered; a repeated visit, or one of another length, finds
nothing prepared and reads for itself. Sealing has to wait for the offer: each visit has a key of its own. Knows no key and no GPU.
"""

from __future__ import annotations

import asyncio
import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_holder.commitments import Committed
from data_holder.sealing import Membership
from shared.claims.visit import CursorRange, Grant
from shared.errors import GputError
from shared.service.logging import get_logger

_log = get_logger("data_holder.ahead")


@dataclass(frozen=True)
class Ready:
    """A visit's membership, and the plaintext of its first chunks: as many as there was room for."""

    membership: Membership
    chunks: Sequence[bytearray] = ()

    def erase(self) -> None:
        """Overwrite the plaintext."""
        for chunk in self.chunks:
            chunk[:] = bytes(len(chunk))


@dataclass(frozen=True)
class _Reading:
    """Work under way, or done. `stop`: nobody wants it any more."""

    committed: Committed
    cursor: CursorRange
    chunk_bytes: int
    stop: threading.Event
    task: asyncio.Task[Ready]

    def is_for(self, committed: Committed, grant: Grant) -> bool:
        return self.committed is committed and (self.cursor, self.chunk_bytes) == (grant.cursor, grant.chunk_bytes)


class ReadAhead:
    """One visit ahead for each session. `room`: bytes of plaintext that may lie ready for each."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._readings: dict[str, _Reading] = {}

    def begin(self, session: str, committed: Committed, done: Grant) -> None:
        """Prepare the visit after `done`. Nothing else may read this dataset before `take` or `drop`."""
        cursor = done.cursor.model_copy(update={"start": done.cursor.start + done.cursor.count})
        stop = threading.Event()
        work = asyncio.to_thread(_prepared, committed, cursor, done.chunk_bytes, self._room, stop)
        task = asyncio.create_task(work, name=f"read ahead for {session}")
        self._readings[session] = _Reading(committed, cursor, done.chunk_bytes, stop, task)

    async def take(self, session: str, committed: Committed, grant: Grant) -> Ready:
        """What `grant` needs: as it was prepared, where it was; else its membership, made now.

        Raises:
            UnfitData: the files changed since they were opened.
        """
        reading = self._readings.get(session)
        if reading is not None and reading.is_for(committed, grant):
            await asyncio.wait([reading.task])
            del self._readings[session]
            if not reading.task.cancelled() and reading.task.exception() is None:
                return _still_right(committed, reading.task.result())
        await self.drop(session)
        return Ready(await committed.membership(grant.cursor))

    async def drop(self, session: str) -> None:
        """Forget what was prepared; when this returns nothing reads the dataset."""
        reading = self._readings.get(session)
        if reading is None:
            return
        reading.stop.set()
        await asyncio.wait([reading.task])
        self._readings.pop(session, None)
        if not reading.task.cancelled() and reading.task.exception() is None:
            reading.task.result().erase()

    async def settled(self, session: str) -> None:
        """Until nothing is being prepared for a session."""
        if (reading := self._readings.get(session)) is not None:
            await asyncio.wait([reading.task])


def _still_right(committed: Committed, ready: Ready) -> Ready:
    """What was read before is believed only while the files are as they were. Raises: UnfitData."""
    try:
        committed.dataset.settle()
    except GputError:
        ready.erase()
        raise
    return ready


def _prepared(committed: Committed, cursor: CursorRange, chunk_bytes: int, room: int, stop: threading.Event) -> Ready:
    """Blocking. Raises: UnfitData: the files changed; whoever reads them next says so."""
    membership = Membership(committed.salt, *committed.tree.shown(cursor))
    length = cursor.count * committed.dataset.record_bytes
    chunks: list[bytearray] = []
    try:
        for at in range(0, min(length, room), chunk_bytes):
            size = min(chunk_bytes, length - at)
            lying = committed.dataset.lying(cursor, at, size)
            if stop.is_set() or (at and (lying is None) != bool(chunks)):
                break  # the first chunks, and all of them in one way
            if lying is not None:
                _touch(lying)
                continue
            chunk = bytearray(size)
            committed.dataset.read_slice(cursor, at, chunk)
            chunks.append(chunk)
    except GputError as error:
        _log.info("nothing read ahead", code=error.code)
        raise
    return Ready(membership, chunks)


def _touch(lying: memoryview) -> None:
    """Have a file's pages in memory: it is sealed out of them, and nothing else of it can be made ready."""
    np.frombuffer(lying, np.uint8)[:: mmap.PAGESIZE].max()
