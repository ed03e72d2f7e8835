"""HBM: the GPU's protected memory, a sparse address space. Knows addresses and bytes; no region, no key, no tensor.

The emulation is an anonymous memory file mapped without reservation, so that compute processes share it by an inherited
descriptor (the GPU's own fabric, not a host interface). Addresses are offsets into it.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from shared.canonical import blake3_256
from shared.errors import OutOfMemory, VerificationFailed

PAGE: Final = 4096
_MAP_NORESERVE: Final = 0x4000  # asm-generic/mman-common.h; Python names it only from 3.13 on
_ZEROS: Final = bytes(1 << 20)
_ATTEMPTS: Final = 64
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@dataclass(frozen=True)
class Extent:
    """Bytes of HBM: address and length."""

    address: int
    length: int


@dataclass(frozen=True)
class ScrubProof:
    """Read-back of a scrubbed extent: BLAKE3 (32 bytes) of the bytes found there, equal to that of `length` zeros."""

    address: int
    length: int
    digest: bytes


class HBM:
    """`size` bytes of addresses, of which allocations may use `backing` bytes in all (the host's memory behind them).

    Args:
        entropy: where addresses come from; an address must not be guessable (design 4.2 step 3).
    """

    def __init__(self, size: int, entropy: Callable[[int], bytes], backing: int | None = None) -> None:
        self.size = size // PAGE * PAGE
        self.backing = min(self.size, backing if backing is not None else self.size)
        self._entropy = entropy
        self.fd = os.memfd_create("gpu-hbm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        # Compute shares the descriptor: cutting the memory short would end every process that touches it with SIGBUS.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._map = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | _MAP_NORESERVE)
        self._view = memoryview(self._map)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._starts: list[int] = []
        self._lengths: dict[int, int] = {}

    @property
    def used(self) -> int:
        """Allocated bytes, whole pages."""
        return sum(self._lengths.values())

    def allocate(self, length: int) -> int:
        """Address of `length` zeroed bytes at a random page, every page touched.

        Raises:
            OutOfMemory: more than is free, or no gap of that length was found.
        """
        span = _pages(length)
        if length < 1 or span > self.backing - self.used:
            raise OutOfMemory(
                f"{length} bytes do not fit: {self.backing - self.used} of {self.backing} bytes of GPU memory are free",
                remedy="Use a smaller buffer, model or number of buffers, or a GPU with more memory.",
            )
        address = self._random_gap(span)
        bisect.insort(self._starts, address)
        self._lengths[address] = span
        self._clear(address, span)
        return address

    def _random_gap(self, span: int) -> int:
        slots = (self.size - span) // PAGE + 1
        for _ in range(_ATTEMPTS):
            # 128 random bits modulo at most 2^25 slots: the bias is below 2^-100.
            address = int.from_bytes(self._entropy(16), "big") % slots * PAGE
            if self._is_free(address, span):
                return address
        return self._any_gap(span)

    def _any_gap(self, span: int) -> int:
        """A random one among the gaps when memory is nearly full and blind draws keep missing."""
        gaps, end = [], 0
        for start in [*self._starts, self.size]:
            if start - end >= span:
                gaps.append((end, start - span))
            end = start + self._lengths.get(start, 0)
        if not gaps:
            raise OutOfMemory(f"no gap of {span} bytes is left in GPU memory")
        first, last = gaps[int.from_bytes(self._entropy(16), "big") % len(gaps)]
        return first + int.from_bytes(self._entropy(16), "big") % ((last - first) // PAGE + 1) * PAGE

    def _is_free(self, address: int, span: int) -> bool:
        after = bisect.bisect_right(self._starts, address)
        if after < len(self._starts) and self._starts[after] < address + span:
            return False
        return after == 0 or self._starts[after - 1] + self._lengths[self._starts[after - 1]] <= address

    def view(self, address: int, length: int) -> memoryview:
        """Writable bytes inside one allocation.

        Raises:
            OutOfMemory: code `bad-address`: the extent does not lie inside one allocation.
        """
        at = bisect.bisect_right(self._starts, address) - 1
        start = self._starts[at] if at >= 0 else -1
        if start < 0 or length < 0 or address + length > start + self._lengths[start]:
            raise OutOfMemory(f"extent of {length} bytes lies outside of what is allocated", code="bad-address")
        return self._view[address : address + length]

    # ------------------------------------------------------------ without allocation: what stock firmware lets a channel key command

    def require_backed(self, address: int, length: int) -> None:
        """Raises: OutOfMemory: `bad-address`: beyond the address space; or there is no memory behind that much more of it."""
        self._require_address(address, length)
        there = sum(
            min(end, address + length) - max(start, address)
            for start, end in _resident(self.fd, address, address + length)
        )
        if os.fstat(self.fd).st_blocks * 512 + length - there > self.backing:
            raise OutOfMemory(f"no memory is left behind {length} more bytes of addresses")

    def peek(self, address: int, length: int) -> bytes:
        """A copy of any bytes; those behind which there is no memory read as zeros. Raises: OutOfMemory `bad-address`."""
        self._require_address(address, length)
        return os.pread(self.fd, length, address)

    def _require_address(self, address: int, length: int) -> None:
        if address + length > self.size:
            raise OutOfMemory(f"extent of {length} bytes lies beyond the address space", code="bad-address")

    def poke(self, address: int, data: bytes) -> None:
        """Write anywhere. Raises: OutOfMemory: as `require_backed`."""
        self.require_backed(address, len(data))
        self._view[address : address + len(data)] = data

    def clear_strays(self) -> int:
        """Give back all memory outside of allocations; bytes that had been there.

        Raises:
            VerificationFailed: some is still there.
        """
        strays = list(self._strays())
        for stray in strays:
            self._clear(stray.address, stray.length)
            self._map.madvise(mmap.MADV_REMOVE, stray.address, stray.length)
        if any(self._strays()):
            raise VerificationFailed("memory outside of allocations is not empty after its scrub", code="scrub-failed")
        return sum(stray.length for stray in strays)

    def _strays(self) -> Iterator[Extent]:
        """Pages with memory behind them that no allocation covers: the kernel knows them all."""
        for start, end in _resident(self.fd, 0, self.size):
            at = start
            first = max(bisect.bisect_right(self._starts, start) - 1, 0)
            for begin in self._starts[first : bisect.bisect_left(self._starts, end)]:
                if at < min(begin, end):
                    yield Extent(at, begin - at)
                at = max(at, begin + self._lengths[begin])
            if at < end:
                yield Extent(at, end - at)

    def scrub_slack(self, used: Extent) -> None:
        """Zero the end of the last page behind what is used of an allocation, with read-back. Raises: VerificationFailed."""
        end = used.address + used.length
        if used.length and (slack := _pages(used.length) - used.length):
            self.scrub(end, slack)

    def copy(self, target: int, source: int, length: int) -> None:
        """Device-to-device copy between two allocated extents."""
        self.view(target, length)[:] = self.view(source, length)

    def digest(self, address: int, length: int) -> bytes:
        """BLAKE3 (32 bytes) of an extent as it reads now."""
        return blake3_256(self.view(address, length))

    def erase(self, address: int, length: int) -> None:
        """Zero an extent; no proof."""
        self.view(address, length)
        self._clear(address, length)

    def scrub(self, address: int, length: int) -> ScrubProof:
        """Zero an extent and read it back.

        By memset: pages given back with madvise come back unmapped, and the next decryption into them runs at a fifth of the speed.
        Every byte is read and compared with zero, at memory speed; bytes that are all zero have the digest of zeros.

        Raises:
            VerificationFailed: what is read back is not zero.
        """
        self.erase(address, length)
        if not self._is_zero(address, length):
            raise VerificationFailed("memory is not zero after its scrub", code="scrub-failed")
        return ScrubProof(address, length, zeros_digest(length))

    def free(self, address: int) -> None:
        """Scrub one allocation, with proof, and give its pages back to the host."""
        length = self._lengths[address]
        self.scrub(address, length)
        self._map.madvise(mmap.MADV_REMOVE, address, length)
        self._starts.remove(address)
        del self._lengths[address]

    def wipe(self) -> None:
        """Scrub and free everything, and what lies outside of allocations with it."""
        for address in list(self._starts):
            self.free(address)
        self.clear_strays()

    def allocated(self) -> list[tuple[int, int]]:
        """(address, length) of every allocation, ascending; for tests that search all memory in use."""
        return [(start, self._lengths[start]) for start in self._starts]

    def close(self) -> None:
        """Give the memory back; the mapping itself goes with the last view of it."""
        self.wipe()
        os.close(self.fd)

    def _is_zero(self, address: int, length: int) -> bool:
        self.view(address, length)
        start, step = self._base + address, len(_ZEROS)
        return not any(_memcmp(start + at, _ZEROS, min(step, length - at)) for at in range(0, length, step))

    def _clear(self, address: int, length: int) -> None:
        ctypes.memset(self._base + address, 0, length)


def zeros_digest(length: int) -> bytes:
    """BLAKE3 (32 bytes) of `length` zero bytes; remembered, for it costs ten times as much as the read-back itself."""
    known = _ZERO_DIGESTS.get(length)
    if known is None:
        hasher = blake3()
        for _ in range(length // len(_ZEROS)):
            hasher.update(_ZEROS)
        hasher.update(_ZEROS[: length % len(_ZEROS)])
        if len(_ZERO_DIGESTS) >= 64:
            _ZERO_DIGESTS.clear()
        known = _ZERO_DIGESTS[length] = hasher.digest()
    return known


_ZERO_DIGESTS: Final[dict[int, bytes]] = {}


def _resident(fd: int, at: int, until: int) -> Iterator[tuple[int, int]]:
    """(start, end) of every run of pages that has memory behind it and begins before `until`; the first one from `at` on."""
    while at < until:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data from here on
                raise
            return
        at = os.lseek(fd, start, os.SEEK_HOLE)
        if start < until:
            yield start, at


def _pages(length: int) -> int:
    return -(-length // PAGE) * PAGE
