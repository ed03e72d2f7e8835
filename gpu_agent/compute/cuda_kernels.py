"""Kernels of our own on a CUDA device: compiled where they run (NVRTC), begun by NVIDIA's driver API. Knows no HBM and no hash.

NVRTC comes with every PyTorch for CUDA, so no compiler need be installed and no binary is kept. Needs a current CUDA context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import torch

from gpu_agent.compute import cuda_driver
from shared.errors import Unavailable

_BLOCK: Final = 128  # threads that share a processor's place; each of ours works by itself


class Kernels:
    """Kernels of one source.

    Args:
        source: CUDA C, whose kernels are `extern "C"`.
        device: `cuda:N`, whose context is current.
    Raises:
        Unavailable `cuda-failed`: there is no NVRTC, it refuses the source, or the driver what came of it.
    """

    def __init__(self, source: str, names: Sequence[str], device: str) -> None:
        self._driver = cuda_driver.driver()
        self._image = _compiled(source, torch.cuda.get_device_capability(device))
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), self._image), "cuModuleLoadData")
        self._functions = {name: self._function(module, name) for name in names}

    def _function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        result = self._driver.cuModuleGetFunction(ctypes.byref(found), module, name.encode())
        self._check(result, "cuModuleGetFunction")
        return found

    def start(self, name: str, threads: int, *arguments: Any) -> None:
        """Begin one on PyTorch's current stream, of at least so many threads; those beyond have nothing to do, and must see that.

        Args:
            arguments: ctypes values, of the kernel's own types.
        Raises:
            Unavailable `cuda-failed`.
        """
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        blocks = -(-threads // _BLOCK)
        result = self._driver.cuLaunchKernel(
            self._functions[name], blocks, 1, 1, _BLOCK, 1, 1, 0, stream, places, ctypes.c_void_p()
        )
        self._check(result, "cuLaunchKernel")

    def _check(self, result: int, what: str) -> None:
        cuda_driver.check(self._driver, result, what)


def _library() -> Any:
    """NVRTC of PyTorch's own version of CUDA. Raises: Unavailable `cuda-failed`."""
    name = f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}"
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise Unavailable(f"NVIDIA's run-time compiler {name} cannot be loaded", code="cuda-failed") from None


def _compiled(source: str, capability: tuple[int, int]) -> bytes:
    """The source as machine code of a card of that compute capability. Raises: Unavailable `cuda-failed`."""
    library, program = _library(), ctypes.c_void_p()

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, name)(*arguments):
            raise Unavailable(f"{name} failed", code="cuda-failed")

    call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"gput.cu", 0, None, None)
    try:
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode())
        call("nvrtcCompileProgram", program, 1, options)
        length = ctypes.c_size_t()
        call("nvrtcGetCUBINSize", program, ctypes.byref(length))
        image = ctypes.create_string_buffer(length.value)
        call("nvrtcGetCUBIN", program, image)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
