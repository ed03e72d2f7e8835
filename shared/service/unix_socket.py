"""Unix sockets at any path: addresses have at most 107 bytes, so the folder is named by a descriptor. Knows no protocol."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def bound(path: Path) -> socket.socket:
    """A listening, non-blocking socket at `path`, for this user alone (mode 0600); what an earlier process left there makes room.

    Raises:
        OSError: also when something else than a socket lies there.
    """
    listener = _made(path, socket.SOCK_STREAM)
    listener.listen(16)
    return listener


def mailbox(path: Path) -> socket.socket:
    """As `bound`, for datagrams. Raises: OSError."""
    return _made(path, socket.SOCK_DGRAM)


def drop(path: Path, letter: bytes) -> None:
    """Leave a datagram in the mailbox at `path`, if there is one and it has room; waits for nobody."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with _short(path) as address:
            sender.sendto(letter, address)


def _made(path: Path, kind: socket.SocketKind) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, kind)
    try:
        with _short(path) as address:
            before = os.umask(0o177)
            try:
                made.bind(address)
            finally:
                os.umask(before)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def connected(path: Path, timeout_s: float) -> socket.socket:
    """A connection to the socket at `path`, whose calls wait at most `timeout_s`. Raises: OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _short(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _short(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
