"""The MUX's select register: a page that the platform writes and the GPU's side reads, as those of a PCIe switch. Knows no HTTP and no key.

Whoever can write the file can switch the MUX and nothing more: keys decide what a port is good for (design 4.3 step 4).
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Final

from gpu_agent.hardware.mux import NOBODY, Selected
from gpu_agent.mux_interrupt import interrupt, interrupt_of
from shared.names import ORCHESTRATOR_PORT

_FIELDS: Final = struct.Struct("<QB80s")
"""Switches, length of the port's name, its name in ASCII; their CRC-32 stands before them."""
_CRC: Final = struct.Struct("<I")
RECORD_BYTES: Final = _CRC.size + _FIELDS.size
_READS: Final = 8
"""A record that is being written reads as none for a moment; so often it is looked at again."""


def pack(selected: Selected) -> bytes:
    """The register's RECORD_BYTES."""
    name = (selected.port or "").encode("ascii")
    fields = _FIELDS.pack(selected.switches, len(name), name)
    return _CRC.pack(zlib.crc32(fields)) + fields


def unpack(record: bytes) -> Selected | None:
    """What a register says; None: these bytes are no whole record."""
    if len(record) != RECORD_BYTES or _CRC.unpack_from(record)[0] != zlib.crc32(record[_CRC.size :]):
        return None
    switches, length, name = _FIELDS.unpack_from(record, _CRC.size)
    try:
        return Selected(name[:length].decode("ascii") or None, switches)
    except UnicodeDecodeError:
        return None


class MuxRegister:
    """The platform's end: made where it is missing, and never replaced, for the GPU's side keeps it open.

    Raises:
        OSError: the file cannot be made or mapped.
    """

    def __init__(self, path: Path) -> None:
        self._interrupt = interrupt_of(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            os.ftruncate(fd, mmap.PAGESIZE)
            # Mapped, not written with a call: that would wait for the file system whenever it is busy with somebody's commit.
            self._page = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            os.close(fd)

    def select(self, port: str | None) -> None:
        """In force when this returns. Selecting the same port again is no switch."""
        before = unpack(self._page[:RECORD_BYTES]) or NOBODY
        self._page[:RECORD_BYTES] = pack(Selected(port, before.switches + (port != before.port)))
        if port != ORCHESTRATOR_PORT:  # nobody waits there: the orchestrator asks once the platform has answered
            interrupt(self._interrupt)

    def close(self) -> None:
        """What was selected last stays so."""
        self._page.close()


class SelectedPort:
    """The GPU's end: asked for each access what is selected now. Where there is no register, or no sense in it, that is nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._door = threading.Lock()
        self._fd: int | None = None
        self._known: tuple[bytes, Selected] | None = None

    def __call__(self) -> Selected:
        for _ in range(_READS):
            record, known = self._record(), self._known
            if known is not None and record == known[0]:  # read for each record of a visit, and the same all the while
                return known[1]
            if (selected := unpack(record)) is not None:
                self._known = record, selected
                return selected
        return NOBODY

    def _record(self) -> bytes:
        # Read with a call, not mapped: of a file that was cut short it gives less, where touching a mapping would be the process's end.
        try:
            with self._door:
                if self._fd is None:  # without waiting: a pipe in its place would hold up the GPU
                    self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                return os.pread(self._fd, RECORD_BYTES, 0)
        except OSError:
            return b""

    def close(self) -> None:
        """Read no more."""
        with self._door:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)


def register_of(folder: Path, gpu: str) -> Path:
    """Where a GPU's register lies."""
    return folder / f"{gpu}.mux"
