"""Memory of a CUDA device in pieces that other processes map one by one: a worker maps what its launch names, and little beside it.

By NVIDIA's driver API (CUDA Driver API reference, "Virtual Memory Management"). A handle for all of HBM at once would be less code; opening
one of 63 GB took 330 ms on an H100, and a worker's death 120 ms longer. Needs a current CUDA context. Knows no message and no region.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from gpu_agent.compute import cuda_driver
from gpu_agent.hardware.hbm import Extent

GRANULE: Final = 2 << 20
"""Bytes; every piece is a multiple of them."""
_PIECE: Final = 256 << 20
_MOST: Final = 240  # a message between processes carries no more than 253 descriptors (SCM_MAX_FD)
_PINNED: Final = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_DESCRIPTOR: Final = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_ON_DEVICE: Final = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE: Final = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
        ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8),
    )  # fmt: skip


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def piece_bytes(size: int) -> int:
    """Bytes of each piece of `size` bytes but the last, which may be shorter."""
    return _PIECE * max(1, -(-size // (_PIECE * _MOST)))


class Mapping:
    """Addresses for all of a device's HBM in this process, of which those are backed that were mapped. They stay so until it ends.

    Args:
        device: `cuda:N`, whose context is current.
        size: bytes of HBM, whole granules.
        piece: bytes of each piece, as `piece_bytes` has it.
    Raises:
        Unavailable `cuda-failed`.
    """

    def __init__(self, device: str, size: int, piece: int) -> None:
        self.device, self.size, self._piece = device, size, piece
        self._driver = cuda_driver.driver()
        self._location = _Location(_ON_DEVICE, int(device.partition(":")[2]))
        self._mapped = set[int]()
        self._base = ctypes.c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(self._base), _u64(size), _u64(0), _u64(0), _u64(0))

    def make(self) -> list[int]:
        """Take the memory, all of it, and map it; a descriptor for each piece, which the caller closes.

        Raises:
            Unavailable: `cuda-out-of-memory`: the card has not that much free; `cuda-failed`.
        """
        asked = _Properties(_PINNED, _DESCRIPTOR, self._location, None)
        files = []
        for number in range(-(-self.size // self._piece)):
            handle, file = ctypes.c_uint64(), ctypes.c_int()
            self._call("cuMemCreate", ctypes.byref(handle), _u64(self._length(number)), ctypes.byref(asked), _u64(0))
            self._call("cuMemExportToShareableHandle", ctypes.byref(file), handle, ctypes.c_int(_DESCRIPTOR), _u64(0))
            self._map(number, handle)
            files.append(file.value)
        return files

    def reach(self, extent: Extent, files: Sequence[int]) -> None:
        """Map the pieces in which an extent lies, as far as they are not.

        Args:
            files: a descriptor for each piece, as `make` gave them.
        Raises:
            Unavailable `cuda-failed`.
        """
        for number in range(extent.address // self._piece, -(-(extent.address + extent.length) // self._piece)):
            if number not in self._mapped:
                handle = ctypes.c_uint64()
                file = ctypes.c_void_p(files[number])
                self._call("cuMemImportFromShareableHandle", ctypes.byref(handle), file, ctypes.c_int(_DESCRIPTOR))
                self._map(number, handle)

    def bytes_of(self, extent: Extent) -> Tensor:
        """An extent that is mapped, as uint8 (length,)."""
        return cuda_driver.tensor_at(self._base.value + extent.address, extent.length, self.device)

    def _map(self, number: int, handle: Any) -> None:
        at, length = _u64(self._base.value + number * self._piece), _u64(self._length(number))
        access = _Access(self._location, _READ_WRITE)
        self._call("cuMemMap", at, length, _u64(0), handle, _u64(0))
        self._call("cuMemSetAccess", at, length, ctypes.byref(access), _u64(1))
        self._call("cuMemRelease", handle)  # it lives as long as it is mapped
        self._mapped.add(number)

    def _length(self, number: int) -> int:
        return min(self._piece, self.size - number * self._piece)

    def _call(self, name: str, *arguments: Any) -> None:
        cuda_driver.check(self._driver, getattr(self._driver, name)(*arguments), name)


_u64 = ctypes.c_uint64
