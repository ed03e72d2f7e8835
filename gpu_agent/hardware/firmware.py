"""The emulated GPU's firmware as it measures itself: the installed code that plays the device. Knows no key and no report layout.

Real GPUs measure FSP, GSP, SEC2 … images; which block holds what is not published. Here each used block holds one room of the agent's
code, so a changed file changes a block; all others are zero, as reserved blocks are on real devices.

    block = SHA-384(CBOR["gput/firmware/1", room, [[path, SHA-384 of the file], …]])     paths sorted, relative to the installation
    FWID  = SHA-384(CBOR["gput/fwid/1", [values of the used blocks]])
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gpu_agent
import shared
from shared.canonical import cbor_bytes, sha384
from shared.errors import ConfigurationError

BLOCKS: Final = 64
DRIVER_VERSION: Final = "580.000.01"  # "580" names the report form; no NVIDIA driver has this number
VBIOS_VERSION: Final = "00.EE.00.00.01"
VBIOS_FIELD: Final = struct.pack("<II", 0x00EE0000, 0x01)
_ROOMS: Final[dict[int, tuple[str, ...]]] = {
    2: ("gpu_agent/hardware",),
    3: ("gpu_agent/compute",),
    4: ("gpu_agent/workload",),
    5: ("gpu_agent/*",),
    6: ("shared/crypto",),
    7: ("shared/attestation",),
    8: ("shared/wire", "shared/canonical", "shared/claims", "shared/*"),
    10: ("shared/service",),
}


@dataclass(frozen=True)
class Firmware:
    """64 block values (48 bytes each, block 1 first), how often each was extended, and the firmware id (48 bytes)."""

    measurements: tuple[bytes, ...]
    fwid: bytes

    @property
    def extensions(self) -> bytes:
        """MSRSCNT: one u32 (little-endian) per block."""
        return b"".join(struct.pack("<I", 1 if any(value) else 0) for value in self.measurements)

    @property
    def used(self) -> dict[int, bytes]:
        """Block number (1-64) -> value, of the blocks that hold something."""
        return {number: value for number, value in enumerate(self.measurements, start=1) if any(value)}


def measure_firmware(site: Path | None = None) -> Firmware:
    """Measure the code that is installed now.

    Args:
        site: folder that holds `gpu_agent` and `shared`; by default where this process's own code came from.

    Raises:
        ConfigurationError: `nothing-to-measure`: a room has no file.
    """
    places = {package.__name__: _home(package.__path__[0], site) for package in (gpu_agent, shared)}
    values = [bytes(48)] * BLOCKS
    for block, rooms in _ROOMS.items():
        files = sorted(found for room in rooms for found in _files(places, room))
        if not files:
            raise ConfigurationError(f"no code in {', '.join(rooms)} to measure", code="nothing-to-measure")
        values[block - 1] = sha384(cbor_bytes(["gput/firmware/1", list(rooms), [list(file) for file in files]]))
    fwid = sha384(cbor_bytes(["gput/fwid/1", [values[block - 1] for block in sorted(_ROOMS)]]))
    return Firmware(tuple(values), fwid)


def _home(installed: str, site: Path | None) -> Path:
    return site / Path(installed).name if site else Path(installed)


def _files(places: dict[str, Path], room: str) -> list[tuple[str, bytes]]:
    """(path, digest) of a room's files: a folder with all below it, or with `/*` only what lies in it directly."""
    package, _, inner = room.partition("/")
    home = places[package]
    found = home.glob("*") if inner == "*" else (home / inner).rglob("*")
    return [
        (f"{package}/{path.relative_to(home).as_posix()}", sha384(path.read_bytes()))
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    ]
