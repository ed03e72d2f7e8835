"""A GPU's power in a test's hand: reset, and another genuine device in its place. Knows how; no test and no law."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform.device_manufacture import manufacture_device
from shared.errors import EmulationWarning

MANY_BOOTS = 10_000
"""A boot counter that no session has seen yet, so that nothing but the device's identity tells that it is another one."""


def rebooted(device: Device, clock: Callable[[], float]) -> Device:
    """The device as it stands after a reset: memory wiped, no life, no key. Its warm compute process is taken over, for another one
    would take seconds. Whoever uses the old one meanwhile must be kept out by its locks; who waits there comes to the new one."""
    device._compute.destroy()
    device._hbm.wipe()
    fresh = Device(
        device.gpu_id, device._root, device._hbm, device._compute, entropy=os.urandom, clock=clock,
        timer=device._state.timer, next_boot=device._state._next_boot, report=device._processor._report,
    )  # fmt: skip
    fresh._orders, fresh._lock = device._orders, device._lock
    vars(device).update(vars(fresh))
    return fresh


def another(folder: Path, like: Device) -> Device:
    """A second genuine device of the same maker, which answers to the first one's name. It has no compute process and needs none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        manufacture_device(folder, "gpu-1")
    hbm = HBM(1 << 24, os.urandom)
    boots = itertools.count(MANY_BOOTS)
    return Device(
        like.gpu_id, RootOfTrust.load(folder / "devices" / "gpu-1", os.urandom), hbm, ComputeProcess(hbm.fd, hbm.size),
        entropy=os.urandom, clock=like._clock, timer=like._state.timer, next_boot=lambda: next(boots), report=like._processor._report,
    )  # fmt: skip
