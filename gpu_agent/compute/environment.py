"""What compute processes are told by their environment, on the host and on a CUDA device. Knows PyTorch's words; imports no torch."""

from __future__ import annotations

import os
from typing import Final

from gpu_agent.compute.huge_pages import with_huge_heap
from gpu_agent.compute.openmp import with_short_spins

_NO_CARDS: Final = {"CUDA_VISIBLE_DEVICES": ""}
_ON_A_DEVICE: Final = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # to look for CUDA in a way that survives a fork
    # cuBLAS promises the same bytes for the same work only with workspaces of a fixed size (its "Results reproducibility").
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Each process works on one stream: queues for more of them take half of the time that a context's making and end take.
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}
_NOT_OURS: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def host_environment() -> dict[str, str]:
    """Of the compute parent whose memory is the host's: without our settings, and without any card of this machine.

    Autograd gives each card that a PyTorch built for CUDA sees a context in each process that trains, though all its tensors are the
    host's: measured beside an H100, a training of one step took 260 ms instead of 84 with it, and the worker's death 50 ms instead of 6.
    """
    return with_short_spins(with_huge_heap(_inherited())) | _NO_CARDS


def device_environment() -> dict[str, str]:
    """Of processes that use a CUDA device: without our settings, and without the operator's for PyTorch's allocator of its memory."""
    return {key: value for key, value in _inherited().items() if key not in _NOT_OURS} | _ON_A_DEVICE


def _inherited() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GPUT_")}
