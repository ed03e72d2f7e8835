"""Control structures: the region table and the options that launches are described by, as bytes for HBM, where they are measured (attack
H06). Knows no memory and no key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpu_agent.hardware.regions import Region
from shared.canonical import cbor_bytes
from shared.names import RegionKind
from shared.wire.gpu import Configure

_ROW: Final = 64
_USUAL: Final = (("accumulate", None), ("collect", "visit"))
"""What was measured before there were tours keeps its digest."""


def most_bytes(command: Configure, regions: int) -> int:
    """How many bytes they take at most, where there are so many `regions` before those of the configuration."""
    rows = regions + command.buffers + len(RegionKind)
    return len(cbor_bytes(_stated(command))) + (rows + 8) * _ROW


def structures(session: str, manifest: str, command: Configure, regions: Sequence[Region]) -> bytes:
    """Their bytes (CBOR)."""
    rows = [[r.handle, r.kind.value, r.address, r.length] for r in regions]
    options = {name: value for name, value in _stated(command).items() if (name, value) not in _USUAL}
    return cbor_bytes(["gput/control", session, manifest, options, rows])


def _stated(command: Configure) -> dict[str, Any]:
    return command.model_dump(mode="json", by_alias=True)
