"""What of CUDA's driver PyTorch has no public word for: its library, tensors at an address, and pinning memory that is mapped already.

By NVIDIA's driver API (CUDA Driver API reference) and PyTorch's own binding of cudaHostRegister. Needs a current CUDA context. Knows no
message and no HBM.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import torch
from torch import Tensor

from shared.errors import Unavailable

OUT_OF_MEMORY: Final = 2  # CUDA_ERROR_OUT_OF_MEMORY


class _Mapped:
    """Device memory at an address, as PyTorch takes it over without a copy (the CUDA Array Interface, version 3)."""

    def __init__(self, address: int, length: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (length,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def make_current(device: str) -> None:
    """Make this process's context of a device, if it has none, and make it current on this thread."""
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)


def tensor_at(address: int, length: int, device: str) -> Tensor:
    """Mapped memory of a device as uint8 (length,); whoever mapped it keeps it mapped."""
    return torch.as_tensor(_Mapped(address, length), device=device)


def pin(host: Tensor) -> bool:
    """Pin host memory for copies by DMA; False where the driver will not (confidential mode may): copies are slower then, nothing else."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    return int(runtime.cudaHostRegister(host.data_ptr(), host.numel(), 0)) == 0


def driver() -> Any:
    """NVIDIA's driver library. Raises: Unavailable `cuda-failed`."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Unavailable("NVIDIA's driver library libcuda.so.1 cannot be loaded", code="cuda-failed") from None


def check(library: Any, result: int, what: str) -> None:
    """Raises: Unavailable `cuda-failed`, or `cuda-out-of-memory`: what the driver said to a call was not 0."""
    if not result:
        return
    name = ctypes.c_char_p()
    library.cuGetErrorName(result, ctypes.byref(name))
    detail = f"{what} failed: {(name.value or b'?').decode()}"
    if result == OUT_OF_MEMORY:
        raise Unavailable(detail, code="cuda-out-of-memory")
    raise Unavailable(detail, code="cuda-failed")
