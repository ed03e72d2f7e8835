"""HBM whose bytes lie on a device behind a fabric: no byte of it is this process's own. Knows addresses; no tensor, no process, no key.

What is looked at is a copy, taken at the time of asking and unmapped when it is let go of; what is written goes through staging that the
fabric pins, scrubs and owns. A write through a view is refused by the view itself, so none can be lost.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from gpu_agent.hardware.address_space import PAGE, AddressSpace
from gpu_agent.hardware.hbm import HBM, Buffer, Extent
from shared.canonical import cbor_bytes, keyed_blake3
from shared.errors import OutOfMemory, Unavailable, VerificationFailed

# Bytes of one request: a device that stands still is noticed, and other requests get their turn.
_STEP: Final = 1 << 30


class Fabric(Protocol):
    """The device's memory: operations on its bytes, done in the order in which they are asked for. Addresses are offsets into it.

    Every method raises `Unavailable` where the device or its keeper is gone; what was in memory is lost then.
    """

    @property
    def size(self) -> int:
        """Bytes of memory, whole pages, zeroed at start."""

    @property
    def slot_bytes(self) -> int:
        """The most that one landing place takes."""

    def landing(self, length: int) -> memoryview:
        """A free staging slot's first `length` bytes; waits until an older copy has left one."""

    def land(self, address: int, length: int) -> None:
        """Begin to copy what lies in the last landing place; returns at once, errors come with a later request."""

    def read_into(self, address: int, target: memoryview) -> None:
        """Copy bytes of the device's out."""

    def zero(self, address: int, length: int) -> None:
        """Zero bytes; done when it returns."""

    def is_zero(self, address: int, length: int) -> bool:
        """Whether every byte is zero, read by the device."""

    def dirty_pages(self, address: int, length: int) -> int:
        """How many whole pages are not zero."""

    def copy(self, target: int, source: int, length: int) -> None:
        """Device to device; done when it returns."""

    def digest(self, parts: Sequence[tuple[bytes, Extent]]) -> bytes:
        """BLAKE3 (32 bytes) of heads and of extents as they read now, in turn."""

    def wash(self) -> None:
        """Zero all staging that was used; what is on its way arrives first."""

    def close(self) -> None:
        """Give the memory back; it must be zero by then."""


class DeviceHBM(HBM):
    """`fabric.size` bytes of addresses, with memory behind all of them.

    Args:
        entropy: as for `HBM`.
    """

    copies_ahead = False  # its own copies take no time, and staging serves one at a time

    def __init__(self, fabric: Fabric, entropy: Callable[[int], bytes]) -> None:
        # Not HBM's own: there is no file and no mapping here, and whatever would reach for one fails.
        AddressSpace.__init__(self, fabric.size, entropy)
        self._fabric = fabric

    def _first_touch(self, address: int, length: int) -> None:
        self._clear(address, length)  # a device's memory has no pages of the host's

    def view(self, address: int, length: int) -> memoryview:
        """A copy of bytes inside one allocation, as they read now; not writable.

        The copy is a mapping of its own: when it is let go of, its pages go back to the kernel and stay in nobody's heap (law L7).

        Raises:
            OutOfMemory: code `bad-address`.
        """
        self.require_inside(address, length)
        return self._copy_of(address, length)

    def _copy_of(self, address: int, length: int) -> memoryview:
        if not length:
            return memoryview(b"")
        pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(
                mmap.MADV_HUGEPAGE
            )  # a fault for each small page takes as long as its copy, and many times that in a VM
        copy = memoryview(pages)
        for at in range(0, length, _STEP):
            self._fabric.read_into(address + at, copy[at : at + _STEP])
        return copy.toreadonly()

    def write(self, address: int, data: Buffer) -> None:
        """See `HBM.write`."""
        self.require_inside(address, len(data))
        self._put(address, data)

    def _put(self, address: int, data: Buffer) -> None:
        source, most = memoryview(data), self._fabric.slot_bytes
        for at in range(0, len(source), most):
            part = source[at : at + most]
            self._fabric.landing(len(part))[:] = part
            self._fabric.land(address + at, len(part))

    @property
    def at_once(self) -> bool:
        """The device's own process may be waited for."""
        return False

    def landing(self, address: int, length: int) -> memoryview:
        """A staging slot: what does not authenticate never gets into the device's memory.

        Raises:
            OutOfMemory: as `view`, or longer than a slot.
        """
        self.require_inside(address, length)
        if length > self._fabric.slot_bytes:
            raise OutOfMemory(f"a record of {length} bytes is longer than a staging slot", code="bad-address")
        return self._fabric.landing(length)

    def land(self, address: int, length: int) -> None:
        """Copy the landing place into the device while the next record is opened into another."""
        self.require_inside(address, length)
        self._fabric.land(address, length)

    # ------------------------------------------------------------ without allocation

    def require_backed(self, extents: Collection[Extent]) -> None:
        """Raises: OutOfMemory: `bad-address`: beyond the address space. All of it has memory behind it."""
        for one in extents:
            self.require_address(one.address, one.length)

    def peek(self, address: int, length: int) -> bytes:
        """See `HBM.peek`."""
        self.require_address(address, length)
        return bytes(self._copy_of(address, length))

    def poke(self, address: int, data: bytes) -> None:
        """See `HBM.poke`."""
        self.require_address(address, len(data))
        self._put(address, data)

    def clear_strays(self) -> int:
        """Zero all memory outside of allocations; bytes of pages that had been anything else.

        Raises:
            VerificationFailed: some is still there.
        """
        found = 0
        for address, length in self._gaps():
            dirty = self._fabric.dirty_pages(address, length)
            if not dirty:
                continue
            found += dirty * PAGE
            self._clear(address, length)
            if not self._is_zero(address, length):
                raise VerificationFailed(
                    "memory outside of allocations is not empty after its scrub", code="scrub-failed"
                )
        return found

    def _gaps(self) -> list[tuple[int, int]]:
        gaps, at = [], 0
        for start, length in [*self.allocated(), (self.size, 0)]:
            if start > at:
                gaps.append((at, start - at))
            at = start + length
        return [(start + step, min(_STEP, length - step)) for start, length in gaps for step in range(0, length, _STEP)]

    # ------------------------------------------------------------ whole extents

    def copy(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """See `HBM.copy`."""
        for target, source, length in moves:
            self.require_inside(target, length)
            self.require_inside(source, length)
        for target, source, length in moves:
            self._fabric.copy(target, source, length)

    def digest(self, address: int, length: int) -> bytes:
        """See `HBM.digest`."""
        self.require_inside(address, length)
        return self._fabric.digest([(b"", Extent(address, length))])

    def digest_of(self, parts: Iterable[tuple[bytes, Extent]]) -> bytes:
        """See `HBM.digest_of`."""
        asked = list(parts)
        for _, extent in asked:
            self.require_inside(extent.address, extent.length)
        return self._fabric.digest(asked)

    def tags(self, key: bytes, extents: Sequence[tuple[int, Extent]]) -> list[bytes]:
        """See `HBM.tags`: here keyed BLAKE3 (32 bytes) of the number and the digest, so that the key stays in this process."""
        return [
            keyed_blake3(key, cbor_bytes([number, self.digest(one.address, one.length) if one.length else b""]))
            for number, one in extents
        ]

    def duplicate(
        self, key: bytes, number: int, moves: Sequence[tuple[int, int, int]], parts: Iterable[tuple[bytes, Extent]]
    ) -> tuple[list[bytes], bytes]:
        """See `HBM.duplicate`: here one after the other."""
        self.copy(moves)
        copies = [(number + at, Extent(target, length)) for at, (target, _, length) in enumerate(moves)]
        return self.tags(key, copies), self.digest_of(parts)

    def erase(self, address: int, length: int) -> None:
        """Zero an extent, and with it all staging: a record that failed to open may lie there (law L7)."""
        self.require_inside(address, length)
        self._clear(address, length)
        self._fabric.wash()

    def free(self, address: int) -> None:
        """Scrub one allocation, with proof. The device's memory stays with the agent."""
        self.scrub(address, self._lengths[address])
        self.forget(address)

    def close(self) -> None:
        """Wipe, and give the memory back. Where its keeper died there is nothing left to wipe."""
        with contextlib.suppress(Unavailable):
            self.wipe()
        self._fabric.close()

    def _is_zero(self, address: int, length: int) -> bool:
        return all(self._fabric.is_zero(address + at, min(_STEP, length - at)) for at in range(0, length, _STEP))

    def _clear(self, address: int, length: int) -> None:
        for at in range(0, length, _STEP):
            self._fabric.zero(address + at, min(_STEP, length - at))
