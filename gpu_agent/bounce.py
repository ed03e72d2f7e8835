"""Bounce buffers: host memory shared with a holder on this machine, so that its sealed records pass no socket. Knows no key and no port.

What lies there is as untrusted as what comes over HTTP, and may change while it is read; the copy engine believes data only by the
commitment in the closing record. A buffer is anonymous memory of the agent's own making and sealed against shrinking: were it a file of
the holder's, cutting it off would end this process (SIGBUS).
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_agent.doorbell import Copies, Doorbell, exactly
from shared.errors import BadRequest, ConfigurationError, Conflict, NotFound
from shared.service.clock import Entropy
from shared.service.logging import get_logger
from shared.service.unix_socket import bound
from shared.wire.bounce import MAX_BUFFER_BYTES, NAME_BYTES, REQUEST

PATIENCE_S: Final = 5.0
"""Who connects says within so long how much it wants."""
AGAIN_S: Final = 1.0
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_log = get_logger("bounce")


@dataclass
class _Buffer:
    memory: mmap.mmap
    length: int
    newest: int = 0


class BounceBuffers:
    """`limit_bytes`: of all buffers together; `connections`: of those that have a buffer and those that may still ask for one."""

    def __init__(self, limit_bytes: int, entropy: Entropy, connections: int = 64) -> None:
        self._limit, self._entropy, self._connections = limit_bytes, entropy, connections
        self._open, self._full = 0, False
        self._buffers: dict[str, _Buffer] = {}

    def named(self, name: str, number: int) -> None:
        """The places of a request are about to be read; whatever was asked before it is late from now on.

        Raises:
            Conflict `late-bounce-request`: a later one was here first. What it named was brought by that one, and its places may hold
                other records by now. NotFound, as `record`.
        """
        buffer = self._buffer(name)
        if number < buffer.newest:
            raise Conflict("a later request named places in this bounce buffer", code="late-bounce-request")
        buffer.newest = number

    def record(self, name: str, offset: int, length: int) -> memoryview:
        """The bytes at a place, where they lie.

        Raises:
            NotFound `unknown-bounce-buffer`: its connection has ended, or this agent began anew. BadRequest: it is shorter.
        """
        buffer = self._buffer(name)
        if offset + length > buffer.length:
            raise BadRequest(f"the bounce buffer has {buffer.length} bytes", code="outside-bounce-buffer")
        return memoryview(buffer.memory)[offset : offset + length]

    def _buffer(self, name: str) -> _Buffer:
        buffer = self._buffers.get(name)
        if buffer is None:
            raise NotFound(
                "there is no such bounce buffer", code="unknown-bounce-buffer", remedy="Send the records over HTTP."
            )
        return buffer

    @asynccontextmanager
    async def served(self, path: Path, copies: Copies) -> AsyncIterator[None]:
        """Hand out buffers on a Unix socket at `path` (mode 0600) inside the block, and answer their doorbells.

        Raises:
            ConfigurationError: there can be no socket.
        """
        try:
            listener = bound(path)
        except OSError as error:
            raise ConfigurationError(
                f"no Unix socket can be made at {path}: {error.strerror}", code="bounce-socket",
                remedy="Name a path in a folder of this service's own by the setting bounce_socket, or unset it.",
            ) from error  # fmt: skip
        accepting = asyncio.create_task(self._accepting(listener, copies), name="bounce")
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            self._buffers.clear()

    async def _accepting(self, listener: socket.socket, copies: Copies) -> None:
        """Until the block ends. Should it end before, who connects is refused at once, and does not wait for who accepts nobody; the
        listener's path stays, and the next start takes it over."""
        with listener:
            try:
                await self._accept(listener, copies)
            except Exception:  # a bug in here must not end the GPU: records go over HTTP
                _log.exception("no more bounce buffers until this agent is started again")

    async def _accept(self, listener: socket.socket, copies: Copies) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # as a rule no descriptor is left; those who have buffers keep them
                    _log.warning("a bounce buffer cannot be asked for now", why=error.strerror)
                    await asyncio.sleep(AGAIN_S)
                    continue
                if self._too_many():
                    connection.close()
                    continue
                connection.setblocking(False)
                self._open += 1
                served = connections.create_task(self._serve(connection, copies))
                served.add_done_callback(self._closed)

    def _too_many(self) -> bool:
        """Whether no more are served now; who is hung up on sends its records over HTTP."""
        full = self._open >= self._connections
        if full and not self._full:  # said once: whoever keeps asking would fill the log
            _log.warning("no more bounce buffers: too many connections", connections=self._open)
        self._full = full
        return full

    def _closed(self, _task: asyncio.Task[None]) -> None:
        self._open -= 1

    async def _serve(self, connection: socket.socket, copies: Copies) -> None:
        name = ""
        with connection:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    wanted = await exactly(connection, REQUEST.size)
                name = self._hand_over(connection, REQUEST.unpack(wanted)[0])
                await Doorbell(connection, name, copies).serve()
            except (OSError, TimeoutError, EOFError, BadRequest) as error:
                _log.info("no bounce buffer", why=type(error).__name__)
            except Exception:  # no thread is left, or a bug: none of it is any other connection's
                _log.exception("a bounce buffer ended")
            finally:
                # A copy under way keeps the memory until it is through.
                self._buffers.pop(name, None)

    def _hand_over(self, connection: socket.socket, length: int) -> str:
        held = sum(buffer.length for buffer in self._buffers.values())
        if not 0 < length <= MAX_BUFFER_BYTES or held + length > self._limit:
            raise BadRequest("more than a bounce buffer may have")
        descriptor = os.memfd_create("gput-bounce", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, length)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)
            name = self._entropy(NAME_BYTES)
            socket.send_fds(connection, [name], [descriptor])
        finally:
            os.close(descriptor)
        self._buffers[name.hex()] = _Buffer(memory, length)
        return name.hex()
