"""The kernels' own source, compiled for this processor: what a card's threads do together is done one after the other. Test support."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from gpu_agent.compute.card_hasher import CHUNK

COMPILER = shutil.which("cc")
BEYOND = 3
"""Threads that a launch has too many, as one on a card may."""


class CompiledTree:
    """`gpu_agent.compute.card_hasher.Tree` over memory of this host."""

    def __init__(self, folder: Path) -> None:
        assert COMPILER is not None
        source, library = resources.files("gpu_agent.compute").joinpath("blake3.c"), folder / "blake3.so"
        subprocess.run(
            [COMPILER, "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-std=c99", "-o", str(library), str(source)],
            check=True,
        )
        self._library = ctypes.CDLL(str(library))
        self._number = ctypes.c_uint64.in_dll(self._library, "NUMBER")

    def _run(self, kernel: Any, threads: int, *arguments: Any) -> None:
        for number in range(threads + BEYOND):
            self._number.value = number
            kernel(*arguments)

    def chunks(self, data: Tensor, first: int, values: Tensor) -> None:
        """See `Tree.chunks`."""
        length, to = ctypes.c_uint64(data.numel()), ctypes.c_void_p(values.data_ptr())
        start = ctypes.c_void_p(data.data_ptr())
        self._run(self._library.chunks, -(-data.numel() // CHUNK), start, length, ctypes.c_uint64(first), to)

    def parents(self, values: Tensor, count: int, root: bool, above: Tensor) -> None:
        """See `Tree.parents`."""
        start, to = ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(above.data_ptr())
        flag = ctypes.c_uint32(8 if root else 0)
        self._run(self._library.parents, -(-count // 2), start, ctypes.c_uint64(count), flag, to)
