"""Memory and compute of an emulated GPU, as the settings name them: on this host, or on a CUDA device. Wiring only; imports no torch."""

from __future__ import annotations

from collections.abc import Callable

from gpu_agent.compute.device_process import DeviceCompute
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.compute.process import ComputeProcess
from gpu_agent.crew import Crew
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import HBM
from gpu_agent.settings import AgentSettings
from shared.errors import ConfigurationError
from shared.service.logging import get_logger

_log = get_logger("gpu")


def open_engines(settings: AgentSettings, entropy: Callable[[int], bytes], crew: Crew) -> tuple[HBM, ComputeProcess]:
    """Memory and what computes over it. Nothing falls back: a device that is not there is an error.

    Args:
        crew: who goes over memory of this host side by side.
    Raises:
        ConfigurationError: `no-cuda-device`, `gpu-memory`: the device or the memory is not to be had.
    """
    device = settings.cuda_device
    if device is not None:
        return on_device(device, settings.cuda_bytes, entropy)
    try:
        hbm = HBM(settings.hbm_bytes, entropy, settings.backing(), crew)
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigurationError(
            f"an address space of {settings.hbm_bytes} bytes for GPU memory cannot be had: {error}",
            code="gpu-memory",
            remedy="Choose a smaller hbm_bytes, or allow this process more address space (ulimit -v).",
        ) from None
    return hbm, ComputeProcess(hbm.fd, hbm.size)


def on_device(device: str, size: int | None, entropy: Callable[[int], bytes]) -> tuple[DeviceHBM, DeviceCompute]:
    """Memory of `size` bytes (None: half of what is free) on a device, and compute there.

    Raises:
        ConfigurationError: as `open_engines`.
    """
    fabric = DeviceFabric(device, size)
    _log.info(
        "memory and compute are on a device", device=device, card=fabric.name, bytes=fabric.size, pinned=fabric.pinned,
        digests="card" if fabric.hashes else "host",
    )  # fmt: skip
    hbm = DeviceHBM(fabric, entropy)
    return hbm, DeviceCompute(fabric, hbm)
