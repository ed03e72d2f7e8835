"""The emulated GPU's firmware as it measures itself: the installed code that plays the device. Knows no key and no report layout.

Real GPUs measure FSP, GSP, SEC2 … images; which block holds what is not published. Here each used block holds one room of the agent's
code, so a changed file changes a block; all others are zero, as reserved blocks are on real devices. What stands for code in ROM lies in
blocks that a VBIOS RIM speaks of (1-7, 9-13), what stands for code that the driver loads in those of a driver RIM (8, 22-41).

    block = SHA-384(CBOR["gput/firmware/1", block number, [[path, SHA-384 of the file], …]])     paths sorted, from the package's name on
    FWID  = SHA-384(CBOR["gput/fwid/1", [values of the used blocks]])
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
# The first prefix that fits decides, and the last of a package fits everything: a new folder cannot go unmeasured.
_ROOMS: Final[tuple[tuple[str, int | None], ...]] = (
    ("gpu_agent/hardware/", 2),
    ("gpu_agent/compute/", 22),
    ("gpu_agent/workload/", 23),
    ("gpu_agent/platform/", None),  # the untrusted host, no part of the device
    ("gpu_agent/", 26),
    ("shared/crypto/", 6),
    ("shared/attestation/", 7),
    ("shared/service/", 27),
    ("shared/", 8),
)


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
    homes = [site / package.__name__ if site else Path(package.__path__[0]) for package in (gpu_agent, shared)]
    rooms: dict[int, list[list[str | bytes]]] = {block: [] for _, block in _ROOMS if block is not None}
    for path, digest in sorted(file for home in homes for file in _files(home)):
        block = next(block for prefix, block in _ROOMS if path.startswith(prefix))
        if block is not None:
            rooms[block].append([path, digest])
    values = [bytes(48)] * BLOCKS
    for block, files in rooms.items():
        if not files:
            raise ConfigurationError(f"no code to measure for block {block}", code="nothing-to-measure")
        values[block - 1] = sha384(cbor_bytes(["gput/firmware/1", block, files]))
    fwid = sha384(cbor_bytes(["gput/fwid/1", [values[block - 1] for block in sorted(rooms)]]))
    return Firmware(tuple(values), fwid)


def _files(home: Path) -> Iterator[tuple[str, bytes]]:
    """(path, SHA-384) of every file of an installed package but byte-code caches; a path begins with the package's name."""
    for path in home.rglob("*"):
        relative = path.relative_to(home)
        if path.is_file() and "__pycache__" not in relative.parts:
            yield f"{home.name}/{relative.as_posix()}", sha384(path.read_bytes())
