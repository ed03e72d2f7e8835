"""The firmware of this process's own code, read once: it stays as it is, and some thousand GPUs of the tests would each read all of it."""

from __future__ import annotations

from functools import cache

from gpu_agent.hardware.firmware import Firmware, measure_firmware


@cache
def installed_firmware() -> Firmware:
    return measure_firmware()
