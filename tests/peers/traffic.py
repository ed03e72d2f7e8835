"""Bytes over the loopback of a network namespace of this run's own, by the server's end: as the kernel sends them, headers and all.

Every contestant's every connection goes this way and nobody else's does. Knows no contestant.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

INSIDE = "PEERS_NAMESPACE"
LOOPBACK = "lo"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
ETH_P_ALL, PACKET_OUTGOING, SOL_PACKET, PACKET_STATISTICS = 0x0003, 4, 263, 6
ETHERNET, IPV4, IPV6, TCP = 14, 0x0800, 0x86DD, 6
HEAD = 128
End = tuple[str, int]
"""An address and a port."""


def enter(arguments: Sequence[str]) -> None:
    """Run this program again, alone in a network namespace; returns where that is done, or not possible on this machine."""
    unshare = shutil.which("unshare")
    if os.environ.get(INSIDE) or unshare is None:
        return
    if subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode == 0:
        os.environ[INSIDE] = "yes"
        os.execv(unshare, [unshare, "-rn", sys.executable, *arguments])


def alone() -> bool:
    """Whether this process has a network of its own."""
    return bool(os.environ.get(INSIDE))


def up() -> None:
    """Bring the namespace's loopback up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", LOOPBACK.encode(), 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", LOOPBACK.encode(), flags | IFF_UP))


def total(proc: Path = Path("/proc/self")) -> int:
    """Bytes that the loopback has carried. (`/sys` would tell of the namespace that it was mounted in.)"""
    for line in (proc / "net" / "dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == LOOPBACK:
            return int(counters.split()[8])  # the first of what was sent
    raise OSError("there is no loopback")


def ends(head: bytes) -> tuple[End, End] | None:
    """Source and destination of a TCP packet by its first bytes, Ethernet header first; None for any other."""
    kind = int.from_bytes(head[12:14])
    if kind == IPV4 and head[ETHERNET + 9] == TCP:
        at, addresses, size = ETHERNET + 4 * (head[ETHERNET] & 15), ETHERNET + 12, 4
    elif kind == IPV6 and head[ETHERNET + 6] == TCP:
        at, addresses, size = ETHERNET + 40, ETHERNET + 8, 16
    else:
        return None
    middle = addresses + size
    source, destination = struct.unpack_from("!HH", head, at)
    return (
        (str(ip_address(head[addresses:middle])), source),
        (str(ip_address(head[middle : middle + size])), destination),
    )


class Meter:
    """Counts while it is open. Raises: PermissionError: not in a namespace of one's own."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.bind((LOOPBACK, 0))
        self._socket.settimeout(0.2)
        self._by_end: Counter[End] = Counter()
        self._over = threading.Event()
        self._began = total()
        self.all_bytes = self.missed = 0
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        buffer = bytearray(HEAD)
        while not self._over.is_set():
            try:
                size, _, _, address = self._socket.recvmsg_into([buffer], 0, socket.MSG_TRUNC)
            except TimeoutError:
                continue
            if address[2] == PACKET_OUTGOING and (found := ends(bytes(buffer))) is not None:
                for end in set(found):  # which of the two serves is for the reader to know
                    self._by_end[end] += size - ETHERNET  # as the kernel's own counter has it

    def at(self, *served: End) -> int:
        """Bytes to and from these servers' ends."""
        return sum(self._by_end[end] for end in served)

    def close(self) -> None:
        """Stop; `all_bytes` and `missed` packets are then known."""
        if self._over.is_set():
            return
        self.all_bytes = total() - self._began
        self._over.set()
        self._thread.join()
        self.missed = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        self._socket.close()
