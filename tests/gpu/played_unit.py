"""A GPU's threads and MUX over a device that a test plays. Test support; knows no test."""

from __future__ import annotations

from typing import cast

from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.mux import Mux
from gpu_agent.unit import GpuUnit


class PlayedDevice:
    """Stands for a device and its compute, as far as a unit needs them to be switched off."""

    def wake(self) -> None:
        """Nobody polls."""

    def close(self) -> None:
        """There is nothing to wipe."""

    def unit(self, port: str) -> GpuUnit:
        """With one port; who makes it switches it off."""
        return GpuUnit(cast(Device, self), cast(ComputeProcess, self), Mux((port,)))
