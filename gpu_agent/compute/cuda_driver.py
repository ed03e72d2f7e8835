"""The three things of CUDA that PyTorch has no public word for: memory shared between processes, and pinning memory that is mapped already.

By NVIDIA's driver API (CUDA Driver API reference, "Memory Management": cuIpcGetMemHandle, cuIpcOpenMemHandle) and PyTorch's own binding of
cudaHostRegister. Needs a current CUDA context. Knows no message and no HBM.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import torch
from torch import Tensor

from shared.errors import Unavailable

HANDLE_BYTES: Final = 64  # CU_IPC_HANDLE_SIZE
_LAZY_PEER_ACCESS: Final = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the one flag that the call takes


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class _Mapped:
    """Device memory at an address, as PyTorch takes it over without a copy (the CUDA Array Interface, version 3)."""

    def __init__(self, address: int, length: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (length,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def export(flat: Tensor) -> str:
    """A handle (hex) by which another process of this machine opens the allocation that begins with `flat`.

    Raises:
        Unavailable `cuda-failed`.
    """
    handle, driver = _Handle(), _driver()
    _check(driver, driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(flat.data_ptr())), "share memory")
    return bytes(handle.reserved).hex()


def opened(device: str, handle: str, length: int) -> Tensor:
    """The allocation behind a handle as uint8 (length,). It stays mapped until this process ends.

    Raises:
        Unavailable `cuda-failed`.
    """
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)  # makes the context of this device current on this thread
    driver, address = _driver(), ctypes.c_uint64()
    taken = _Handle.from_buffer_copy(bytes.fromhex(handle))
    code = driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), taken, ctypes.c_uint(_LAZY_PEER_ACCESS))
    _check(driver, code, "open shared memory")
    return torch.as_tensor(_Mapped(address.value, length), device=device)


def pin(host: Tensor) -> bool:
    """Pin host memory for copies by DMA; False where the driver will not (confidential mode may): copies are slower then, nothing else."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    return int(runtime.cudaHostRegister(host.data_ptr(), host.numel(), 0)) == 0


def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Unavailable("NVIDIA's driver library libcuda.so.1 cannot be loaded", code="cuda-failed") from None
    driver.cuIpcOpenMemHandle_v2.argtypes = (ctypes.POINTER(ctypes.c_uint64), _Handle, ctypes.c_uint)
    return driver


def _check(driver: Any, code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(name))
        raise Unavailable(f"CUDA could not {what}: {(name.value or b'?').decode()}", code="cuda-failed")
