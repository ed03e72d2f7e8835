"""Leaves checked by several processes at once, as if by one: the same leaves are kept, and the same first one is refused.

Knows no folder and no check: `receipt_leaves` has those. The processes are started by module name and not by multiprocessing, which would
run the caller's own main module again in each of them and leave them behind where the caller is killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from gput.receipt_known import Known
from gput.receipt_leaves import HeldLeaf
from gput.receipt_worker import answered, holding, read_frame, write_frame
from shared.canonical import cbor_bytes
from shared.errors import Unavailable

CHUNK = 64
"""Leaves asked of a process at once: some 80 ms of work."""
FEW = 400
"""Below so many leaves (0.5 s) further processes cost more than they save."""


def held(known: Known, lines: Sequence[bytes], jobs: int) -> Generator[list[HeldLeaf]]:
    """What is kept of the leaves, in order, piece by piece; it ends before the first leaf that does not hold.

    Raises:
        Unavailable `worker-died`: one of the processes ended unasked.
    """
    starts = range(0, len(lines), CHUNK)
    if jobs == 1 or len(lines) < FEW:
        yield from _sound(lines, (holding(known, at, lines[at : at + CHUNK]) for at in starts))
        return
    with Crew(min(jobs, len(starts)), known) as crew:
        asked = [crew.ask(at, lines[at : at + CHUNK]) for at in starts]
        yield from _sound(lines, (answer.result() for answer in asked))


def _sound(lines: Sequence[bytes], pieces: Iterator[list[HeldLeaf]]) -> Iterator[list[HeldLeaf]]:
    """The pieces up to and with the first that is cut short."""
    for at, piece in zip(range(0, len(lines), CHUNK), pieces, strict=False):
        yield piece
        if len(piece) < min(CHUNK, len(lines) - at):
            return


class Crew:
    """`count` processes that check leaves against `known`, alive as long as this is entered, and gone when the caller is."""

    def __init__(self, count: int, known: Known) -> None:
        self._count, self._known = count, known.to_bytes()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="receipts")
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._workers: list[_Worker] = []

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [worker.process.pid for worker in self._workers]

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._workers.append(worker := _Worker(self._known))
                self._idle.put(worker)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, first: int, lines: Sequence[bytes]) -> Future[list[HeldLeaf]]:
        """What is kept of `lines`, leaf `first` and those behind it, once a process is free. Its error: Unavailable `worker-died`."""
        return self._threads.submit(self._ask, first, lines)

    def _ask(self, first: int, lines: Sequence[bytes]) -> list[HeldLeaf]:
        worker = self._idle.get()
        try:
            return worker.holding(first, lines)
        finally:
            self._idle.put(worker)  # one that died, too: nobody waits for it in vain

    def _end(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.process.kill()  # whoever still waits for an answer reads its end
        self._threads.shutdown()
        for worker in self._workers:
            worker.bury()


class _Worker:
    """One process, and what it was told."""

    def __init__(self, known: bytes) -> None:
        self._untold: bytes | None = known
        # In a process group of its own: Ctrl-C at a terminal is for whoever started it, who then ends it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gput.receipt_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    def holding(self, first: int, lines: Sequence[bytes]) -> list[HeldLeaf]:
        """The process's answer. Raises: Unavailable `worker-died`."""
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None, "opened as pipes"
        assert answers is not None, "opened as pipes"
        try:
            if self._untold is not None:
                write_frame(asked, self._untold)
                self._untold = None
            write_frame(asked, cbor_bytes([first, lines]))
            data = read_frame(answers)
        except OSError:
            data = None
        if data is None:
            raise Unavailable(
                "a process that verifies receipts ended before it was done", code="worker-died",
                remedy="See whether memory was short; `--jobs 1` needs the least.",
            )  # fmt: skip
        return answered(data)

    def bury(self) -> None:
        """Let go of a process that was ended."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # what it did not read any more
                    stream.close()
        self.process.wait()
