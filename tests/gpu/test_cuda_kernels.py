"""Kernels of our own over NVRTC and a driver that are played: what is compiled and begun, and what refusals become."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from gpu_agent.compute import cuda_driver, cuda_kernels
from gpu_agent.compute.cuda_kernels import Kernels
from shared.errors import Unavailable


class Played:
    """Answers as NVRTC and libcuda do, 0 for what went well, and 1 for the call named `refused`; what was begun is in `begun`."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.asked, self.begun = refused, list[str](), list[tuple[Any, ...]]()
        self.options = b""

    def _said(self, name: str) -> int:
        self.asked.append(name)
        return int(name == self.refused)

    def nvrtcCreateProgram(self, program: Any, source: bytes, *_: Any) -> int:  # NVIDIA's names
        assert source == b"the source"
        program._obj.value = 7
        return self._said("nvrtcCreateProgram")

    def nvrtcCompileProgram(self, program: Any, count: int, options: Any) -> int:
        assert (program.value, count) == (7, 1)
        self.options = options[0]
        return self._said("nvrtcCompileProgram")

    def nvrtcGetCUBINSize(self, program: Any, length: Any) -> int:
        length._obj.value = 5
        return self._said("nvrtcGetCUBINSize")

    def nvrtcGetCUBIN(self, program: Any, image: Any) -> int:
        image[0:5] = b"image"
        return self._said("nvrtcGetCUBIN")

    def nvrtcDestroyProgram(self, program: Any) -> int:
        return self._said("nvrtcDestroyProgram")

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        assert image == b"image"
        module._obj.value = 9
        return self._said("cuModuleLoadData")

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        assert module.value == 9
        function._obj.value = 11
        return self._said("cuModuleGetFunction")

    def cuLaunchKernel(self, function: Any, *words: Any) -> int:
        stream, places = words[7:9]
        values = [ctypes.cast(places[at], ctypes.POINTER(kind)).contents.value for at, kind in enumerate(KINDS)]
        self.begun.append((function.value, words[:7], stream.value, values))
        return self._said("cuLaunchKernel")

    def cuGetErrorName(self, code: int, name: Any) -> int:
        name._obj.value = b"CUDA_ERROR_INVALID_VALUE"
        return 0


KINDS = (ctypes.c_uint64, ctypes.c_uint32)


def played(monkeypatch: pytest.MonkeyPatch, refused: str = "") -> Played:
    library = Played(refused)
    monkeypatch.setattr(cuda_driver, "driver", lambda: library)
    monkeypatch.setattr(cuda_kernels, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 13}))
    return library


def test_a_kernel_is_compiled_for_the_card_and_begun_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    library = played(monkeypatch)
    Kernels("the source", ("one",), "cuda:0").start("one", 129, ctypes.c_uint64(1 << 40), ctypes.c_uint32(3))
    assert library.options == b"--gpu-architecture=sm_90"
    assert library.begun == [(11, (2, 1, 1, 128, 1, 1, 0), 13, [1 << 40, 3])]
    assert library.asked.count("nvrtcDestroyProgram") == 1


@pytest.mark.parametrize(
    "refused",
    ["nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN", "cuModuleLoadData",
     "cuModuleGetFunction", "cuLaunchKernel"],
)  # fmt: skip
def test_what_compiler_and_driver_refuse_is_told(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    played(monkeypatch, refused)
    with pytest.raises(Unavailable) as error:
        Kernels("the source", ("one",), "cuda:0").start("one", 1, ctypes.c_uint64(1), ctypes.c_uint32(3))
    assert error.value.code == "cuda-failed"
    assert refused in error.value.detail


def test_a_pytorch_without_cuda_has_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(Unavailable, match="run-time compiler"):
        cuda_kernels._library()
