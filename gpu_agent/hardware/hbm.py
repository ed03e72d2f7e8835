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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpu_agent.hardware.address_space import PAGE, AddressSpace, whole_pages
from gpu_agent.hardware.extents import Extent, ScrubProof
from gpu_agent.hardware.pieces import PIECE, Alone, Once, Piece, SideBySide, cut, dealt, joined
from gpu_agent.hardware.shared_map import SharedMap
from shared.canonical import blake3_256
from shared.canonical.block_hasher import BlockHasher
from shared.canonical.zeros import zeros_digest
from shared.errors import OutOfMemory, VerificationFailed

Buffer = bytes | bytearray | memoryview
_ZEROS: Final = bytes(PIECE)
__all__ = ["HBM", "PAGE", "Extent", "ScrubProof"]
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
_ALONE: Final = Alone()


class HBM(AddressSpace):
    """`size` bytes of addresses, of which allocations may use `backing` bytes in all (the host's memory behind them).

    Bytes are looked at with `view`, and written with `write`, or with `landing` and `land` where they come piece by piece: that is the seam
    at which another memory takes this one's place (`DeviceHBM`).

    Args:
        crew: who goes over long extents side by side.
    Attributes:
        copies_ahead: whether there is anything to win by copying a model while its commit is not yet asked for, beside copies of records.
    """

    copies_ahead: ClassVar[bool] = True

    def __init__(
        self, size: int, entropy: Callable[[int], bytes], backing: int | None = None, crew: SideBySide = _ALONE
    ) -> None:
        super().__init__(size, entropy, backing)
        self._crew = crew
        self.fd = os.memfd_create("gpu-hbm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        # Compute shares the descriptor: cutting the memory short would end every process that touches it with SIGBUS.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._map = SharedMap(self.fd, self.size)
        self._view, self._base = self._map.view, self._map.base

    def view(self, address: int, length: int) -> memoryview:
        """Writable bytes inside one allocation.

        Raises:
            OutOfMemory: code `bad-address`: the extent does not lie inside one allocation.
        """
        self.require_inside(address, length)
        return self._view[address : address + length]

    def write(self, address: int, data: Buffer) -> None:
        """Put bytes inside one allocation. Raises: OutOfMemory, as `view`."""
        self.view(address, len(data))[:] = data

    @property
    def at_once(self) -> bool:
        """Whether a record lands without waiting for anything but the processor."""
        return True

    def landing(self, address: int, length: int) -> memoryview:
        """Where to open a record of `length` bytes (one bulk record at most) that is for `address`; it is there once `land` was called.

        Raises:
            OutOfMemory: as `view`.
        """
        return self.view(address, length)

    def land(self, address: int, length: int) -> None:
        """What was put into the landing place is whole. Here it lies where it belongs already."""

    # ------------------------------------------------------------ without allocation: what stock firmware lets a channel key command

    def require_backed(self, extents: Collection[Extent]) -> None:
        """Raises: OutOfMemory: `bad-address`: beyond the address space; or there is no memory behind that much more of them together."""
        for one in extents:
            self.require_address(one.address, one.length)
        more = sum(one.length - self._there(one) for one in whole_pages(extents))
        if os.fstat(self.fd).st_blocks * 512 + more > self.backing:
            raise OutOfMemory(f"no memory is left behind {more} more bytes of addresses")

    def _there(self, extent: Extent) -> int:
        """Bytes of it that have memory behind them."""
        first, last = extent.address, extent.address + extent.length
        return sum(min(end, last) - max(start, first) for start, end in _resident(self.fd, first, last))

    def peek(self, address: int, length: int) -> bytes:
        """A copy of any bytes; those behind which there is no memory read as zeros. Raises: OutOfMemory `bad-address`."""
        self.require_address(address, length)
        return os.pread(self.fd, length, address)

    def poke(self, address: int, data: bytes) -> None:
        """Write anywhere. Raises: OutOfMemory: as `require_backed`."""
        self.require_backed([Extent(address, len(data))])
        self._view[address : address + len(data)] = data

    def clear_strays(self) -> int:
        """Give back all memory outside of allocations; bytes that had been there.

        Raises:
            VerificationFailed: some is still there.
        """
        strays = list(self._strays())
        for stray in strays:
            self._clear(stray.address, stray.length)
            self._map.advise(mmap.MADV_REMOVE, stray.address, stray.length)
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
        """Zero all that an allocation has behind what is used of it from its start on, with read-back. Raises: VerificationFailed."""
        if slack := self._lengths[used.address] - used.length:
            self.scrub(used.address + used.length, slack)

    def copy(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Device-to-device copies (target, source, bytes), each between two allocations."""
        dealt(self._crew, cut([length for _, _, length in moves]), self._mover(moves))

    def _mover(self, moves: Sequence[tuple[int, int, int]]) -> Callable[[Piece], None]:
        """Copies a piece of them."""
        for target, source, length in moves:
            self.require_inside(target, length)
            self.require_inside(source, length)

        def move(piece: Piece) -> None:
            (target, source, _), (at, length) = moves[piece[0]], piece[1:]
            ctypes.memmove(self._base + target + at, self._base + source + at, length)

        return move

    def digest(self, address: int, length: int) -> bytes:
        """BLAKE3 (32 bytes) of an extent as it reads now."""
        return blake3_256(self.view(address, length))

    def digest_of(self, parts: Iterable[tuple[bytes, Extent]]) -> bytes:
        """BLAKE3 (32 bytes) of heads and of extents as they read now, in turn."""
        hasher = BlockHasher()
        for head, extent in parts:
            hasher.update(head)
            hasher.update(self.view(extent.address, extent.length))
        return hasher.digest()

    def tags(self, key: bytes, extents: Sequence[tuple[int, Extent]]) -> list[bytes]:
        """GMAC (NIST SP 800-38D) of extents as they read now: of each 16 bytes for every PIECE or part of one.

        At the speed of memory where a digest runs at a third of it; says nothing to who has no key, and must never be told to who
        can write there.

        Args:
            key: 32 bytes. extents: each with a number that names what is expected there, below 2^64; a number stands for one content
                under one key.
        """
        pieces = cut([one.length for _, one in extents])
        return joined(len(extents), pieces, dealt(self._crew, pieces, self._tagger(key, extents)))

    def _tagger(self, key: bytes, extents: Sequence[tuple[int, Extent]]) -> Callable[[Piece], bytes]:
        """GMAC of a piece of them."""
        cipher = AESGCM(key)
        views = [self.view(one.address, one.length) if one.length else memoryview(b"") for _, one in extents]

        def tag(piece: Piece) -> bytes:
            extent, at, length = piece
            nonce = extents[extent][0].to_bytes(8, "big") + (at // PIECE).to_bytes(4, "big")
            return cipher.encrypt(nonce, b"", views[extent][at : at + length])

        return tag

    def duplicate(
        self, key: bytes, number: int, moves: Sequence[tuple[int, int, int]], parts: Iterable[tuple[bytes, Extent]]
    ) -> tuple[list[bytes], bytes]:
        """Copies as `copy` makes them, and how they read: `tags`, numbered from `number` on, and `digest_of` parts of the first copy.

        Each piece is read back while a core's cache still has it; the digest begins once the first copy is there, beside the others.
        """
        move = self._mover(moves)
        tag = self._tagger(key, [(number + at, Extent(target, length)) for at, (target, _, length) in enumerate(moves)])
        pieces = cut([length for _, _, length in moves])
        missing = {piece for piece in pieces if piece[0] == 0}
        digest = Once(lambda: self.digest_of(parts))

        def copied(piece: Piece) -> bytes:
            move(piece)
            found = tag(piece)
            missing.discard(piece)
            if not missing:
                digest.begin()
            return found

        tags = dealt(self._crew, pieces, copied)
        return joined(len(moves), pieces, tags), digest.made()

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

    def scrub_all(self, extents: Sequence[Extent]) -> None:
        """Zero many short extents and read them back. Raises: VerificationFailed: as `scrub`."""
        for one in extents:
            self.require_inside(one.address, one.length)
            self._clear(one.address, one.length)
        if not all(self._is_zero(one.address, one.length) for one in extents):
            raise VerificationFailed("memory is not zero after its scrub", code="scrub-failed")

    def free(self, address: int) -> None:
        """Scrub one allocation, with proof, and give its pages back to the host."""
        length = self._lengths[address]
        self.scrub(address, length)
        self._map.advise(mmap.MADV_REMOVE, address, length)
        self.forget(address)

    def wipe(self) -> None:
        """Scrub and free everything, and what lies outside of allocations with it."""
        for address in list(self._starts):
            self.free(address)
        self.clear_strays()

    def close(self) -> None:
        """Give the memory back; the mapping itself goes with the last view of it."""
        self.wipe()
        os.close(self.fd)

    def _is_zero(self, address: int, length: int) -> bool:
        self.view(address, length)
        start = self._base + address
        return not any(dealt(self._crew, cut([length]), lambda piece: _memcmp(start + piece[1], _ZEROS, piece[2])))

    def _first_touch(self, address: int, length: int) -> None:
        self._map.enlarge(address, length)  # before its small pages are there: they need not be copied then
        self._clear(address, length)

    def _clear(self, address: int, length: int) -> None:
        start = self._base + address
        dealt(self._crew, cut([length]), lambda piece: ctypes.memset(start + piece[1], 0, piece[2]))


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
