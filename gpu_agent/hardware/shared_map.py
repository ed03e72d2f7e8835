"""A memory file as this process maps it: the bytes, and advice about them to the kernel (Linux). Knows no address space and no region.

Pages of 2 MiB make everything over GPU memory cheaper: its first touch, each launch's page table (25 MB took 6000 faults and as long to
take apart), scrubs, digests. The kernel gives them only to mappings whose addresses agree with the file's offsets, and for shared memory
only when asked for each extent (MADV_COLLAPSE, since Linux 6.1), whatever the system's setting is. Where it will not, all works as before.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from contextlib import suppress
from typing import Final

HUGE_PAGE: Final = 2 << 20
MADV_COLLAPSE: Final = 25  # asm-generic/mman-common.h, since Linux 6.1: now, and whatever the system's setting is
_PROT_NONE: Final = 0
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000  # Python names it only from 3.13 on
_FAILED: Final = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class SharedMap:
    """`size` bytes of a memory file, writable, shared, without reservation; the first of them lies at the start of a huge page.

    The mapping goes with the last view of it.

    Args:
        fd: the file; -1: zeroed memory of this process and its children alone.
    Attributes:
        view: the bytes. base: where they lie.
    Raises:
        OSError: the kernel has not so many addresses, or refuses the file.
    """

    def __init__(self, fd: int, size: int) -> None:
        # Addresses first, a few more than are needed and nothing behind them; then the file over their aligned part.
        spare, private = size + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        reserved = _map(None, spare, _PROT_NONE, private, -1)
        self.base = -(-reserved // HUGE_PAGE) * HUGE_PAGE
        shared = mmap.MAP_SHARED | _MAP_FIXED | _MAP_NORESERVE | (mmap.MAP_ANONYMOUS if fd < 0 else 0)
        try:
            _map(self.base, size, mmap.PROT_READ | mmap.PROT_WRITE, shared, fd)
        except OSError:
            _libc.munmap(reserved, spare)
            raise
        held = (ctypes.c_ubyte * size).from_address(self.base)
        weakref.finalize(held, _libc.munmap, reserved, spare).atexit = False
        self.view = memoryview(held).cast("B")

    def advise(self, advice: int, address: int, length: int) -> None:
        """`madvise` on whole pages. Raises: OSError; ValueError: they do not lie inside."""
        if not 0 <= address <= address + length <= len(self.view):
            raise ValueError("advice about memory that is not there")
        if _libc.madvise(self.base + address, length, advice):
            raise _error()

    def enlarge(self, address: int, length: int) -> None:
        """Have huge pages behind every whole one of the extent, as far as the kernel will; what lies there stays.

        Never beyond the extent: what is next to it has other users, and memory nobody asked for would count as theirs.
        """
        first, end = -(-address // HUGE_PAGE) * HUGE_PAGE, (address + length) // HUGE_PAGE * HUGE_PAGE
        for at in range(first, end, HUGE_PAGE):
            self.view[at] |= 0  # the kernel makes a page larger, it makes none
            with suppress(OSError):
                self.advise(MADV_COLLAPSE, at, HUGE_PAGE)


def _map(at: int | None, length: int, protection: int, flags: int, fd: int) -> int:
    found: int | None = _libc.mmap(at, length, protection, flags, fd, 0)
    if found is None or found == _FAILED:
        raise _error()
    return found


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
