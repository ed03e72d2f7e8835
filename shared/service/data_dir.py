"""The folder of a service's own state: held by one process at a time, and asked for room. Knows no file in it but its lock."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.errors import ConfigurationError, Unavailable

MARGIN_BYTES = 1 << 20
"""Room that a service wants to see before it calls itself ready: less is gone with the next few commits."""
LOCK = ".lock"
IN_USE: Final = "data-dir-in-use"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder`, made if absent, against every other process; the kernel lets go however this one ends.

    Raises:
        ConfigurationError: codes `data-dir-in-use`, `data-dir`; it cannot be made or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise ConfigurationError(
                f"data_dir {folder} is in use by another process (pid {holder})", code=IN_USE,
                remedy="Stop that one first, or give each service a data_dir of its own.",
            ) from None  # fmt: skip
        _sign(lock, folder)
        yield
    finally:
        os.close(lock)


def _sign(lock: int, folder: Path) -> None:
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise unwritable(folder, error) from None


def _unusable(folder: Path, error: OSError) -> ConfigurationError:
    if error.errno in _FULL:
        return ConfigurationError(f"data_dir {folder} is full: {error.strerror}", code="disk-full",
                                  remedy="Free space on its volume.")  # fmt: skip
    whose = ""
    if error.errno in (errno.EACCES, errno.EPERM) and folder.is_dir():
        whose = f"; it belongs to uid {folder.stat().st_uid}, and this process runs as uid {os.geteuid()}"
    return ConfigurationError(
        f"data_dir {folder} cannot be used: {error.strerror}{whose}", code="data-dir",
        remedy="Name a folder that this user may write, by the setting data_dir, or give it to this user (chown -R).",
    )  # fmt: skip


DISK_FULL: Final = "disk-full"
DISK_UNUSABLE: Final = "disk-unusable"
DISK_TROUBLE: Final = (DISK_FULL, DISK_UNUSABLE)


def unwritable(path: Path, error: OSError) -> Unavailable:
    """What an `OSError` of writing `path` means: codes `disk-full` (no room, no quota, a limit of file sizes), `disk-unusable`."""
    full = error.errno in _FULL
    return Unavailable(
        f"{path} cannot be written: {error.strerror or error}",
        code=DISK_FULL if full else DISK_UNUSABLE,
        remedy="Free space on its volume, or raise the quota; nothing was half written, and it goes on by itself."
        if full
        else "Check the folder, its owner and rights, and whether its volume is mounted for writing.",
    )


def unreadable(path: Path, error: OSError) -> Unavailable:
    """What an `OSError` of reading `path` means: code `disk-unusable`. It says nothing of what lies there: the same file may be whole."""
    return Unavailable(
        f"{path} cannot be read: {error.strerror or error}", code="disk-unusable",
        remedy="Check its volume, and the file's owner and rights; what needs it is tried again by itself.",
    )  # fmt: skip


class Room:
    """Whether `folder` has room, for readiness. However many ask there is one look under way: on a volume that hangs each would keep a
    thread, until the service had none left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._look: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Raises: Unavailable: codes `disk-full`, `disk-unusable`."""
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(asyncio.to_thread(_probe, self._folder))
            self._look.add_done_callback(_heard)
        await asyncio.shield(self._look)


def _heard(look: asyncio.Future[None]) -> None:
    """What it met is no fault of ours where everybody who asked has gone away meanwhile."""
    if not look.cancelled():
        look.exception()


def _probe(folder: Path) -> None:
    # Asked of the volume itself: what it says of its free space leaves out quotas, limits and reserved blocks.
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, MARGIN_BYTES)
    except OSError as error:
        raise unwritable(folder, error) from error
