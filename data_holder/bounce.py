"""A bounce buffer shared with the GPU agent of this machine: sealed records lie there and are sent by place. Knows no key and no grant.

Where there is none (another machine, no socket named, the agent full), records go over HTTP; nothing but speed depends on it.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from data_holder.doorbell import Doorbell
from shared.service.logging import get_logger
from shared.service.unix_socket import connected
from shared.wire.bounce import MAX_BUFFER_BYTES, NAME_BYTES, REQUEST

PATIENCE_S: Final = 5.0
ASK_AGAIN_S: Final = 60.0
"""Who was not answered at all is not asked again so soon: each visit would wait as long in vain."""
_log = get_logger("data_holder.bounce")


class BounceBuffer:
    """Memory that the agent sees, by its name (hex). It ends with the connection."""

    def __init__(self, connection: socket.socket, name: bytes, memory: mmap.mmap) -> None:
        self._connection, self.name, self.memory = connection, name.hex(), memory
        self._turn = self._numbered = 0

    def number(self) -> int:
        """Of the next request that names places here."""
        self._numbered += 1
        return self._numbered

    @classmethod
    def ask(cls, path: Path, length: int) -> BounceBuffer:
        """Have the agent at `path` make one of `length` bytes. Raises: OSError: it does not; EOFError: it hangs up."""
        connection = connected(path, PATIENCE_S)
        try:
            connection.sendall(REQUEST.pack(length))
            name, descriptors, _, _ = socket.recv_fds(connection, NAME_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            try:
                if len(name) != NAME_BYTES or len(descriptors) != 1:
                    raise EOFError("the agent gives no buffer")
                connection.setblocking(False)
                return cls(connection, name, mmap.mmap(descriptors[0], length))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        except BaseException:
            connection.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether both ends are still held."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @contextmanager
    def bell(self) -> Iterator[Doorbell]:
        """Its doorbell, for one visit. Where something that was rung is not answered at its end, the buffer is given back: the agent
        may still read there what the next visit would write over."""
        bell = Doorbell(self._connection, self._turn)
        try:
            yield bell
        finally:
            self._turn = bell.turn + 1
            if not bell.settled:
                self.close()

    def close(self) -> None:
        """Give it back; views of it stay readable until they are gone."""
        self._connection.close()


class BounceLink:
    """One buffer at a time, kept from visit to visit: pages that were touched before are filled five times as fast.

    `path`: the agent's Unix socket; None: records go over HTTP. `timer`: seconds, of a clock that nobody sets.
    """

    def __init__(self, path: Path | None, length: int, timer: Callable[[], float] = time.monotonic) -> None:
        self._path, self._length, self._timer = path, min(length, MAX_BUFFER_BYTES), timer
        self._not_before = timer()
        self._kept: BounceBuffer | None = None
        self._lent = self._said = False

    async def ready(self) -> None:
        """Have a buffer at hand, if there can be one."""
        if self._path is None or self._lent or (self._kept is not None and self._kept.alive):
            return
        self.close()
        if self._timer() < self._not_before:
            return
        try:
            self._kept = await asyncio.to_thread(BounceBuffer.ask, self._path, self._length)
        except (OSError, EOFError, ValueError) as error:
            if not self._said:  # once: every visit would say the same
                _log.warning("no bounce buffer: records go over HTTP", path=str(self._path), why=str(error))
            self._said = True
            if isinstance(error, TimeoutError):
                self._not_before = self._timer() + ASK_AGAIN_S
        else:
            self._said = False

    @contextmanager
    def lend(self) -> Iterator[BounceBuffer | None]:
        """The buffer, for one visit; None: there is none, or another visit has it."""
        if self._kept is None or self._lent:
            yield None
            return
        self._lent = True
        try:
            yield self._kept
        finally:
            self._lent = False

    def close(self) -> None:
        """Give the buffer back."""
        if self._kept is not None:
            self._kept.close()
        self._kept = None
