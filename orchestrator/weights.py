"""Safetensors files against a region plan: which bytes of the file go where in the model region, and back. Knows no tensor library.

Format: u64 little-endian header length ‖ JSON {name: {dtype, shape, data_offsets}} ‖ data (safetensors documentation, "Format").
Only this layout is read and written here, in pieces, so that a model larger than memory can pass through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from shared.canonical import json_value
from shared.claims.layout import Placed, RegionPlan, region_digest
from shared.errors import BadRequest, InvalidData

MAX_HEADER_BYTES = 4 * 1024 * 1024
DTYPES = {
    "float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "bool": "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class WeightsMap:
    """A checked file: for each tensor of the plan, the absolute offset of its bytes in the file."""

    path: Path
    tensors: tuple[tuple[Placed, int], ...]

    def region_pieces(self, piece_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset in the region, bytes) in order, each at most `piece_bytes` long; padding between tensors is left out."""
        with self.path.open("rb") as file:
            for placed, start in self.tensors:
                for done in range(0, placed.size_bytes, piece_bytes):
                    length = min(piece_bytes, placed.size_bytes - done)
                    yield placed.offset + done, read_at(file, start + done, length)

    def region_digest(self) -> str:
        """Digest (BLAKE3, hex) of a model region that holds exactly this file's tensors."""
        # Offset and length name a tensor: one of size zero shares its offset with the next.
        starts = {(placed.offset, placed.size_bytes): start for placed, start in self.tensors}
        plan = RegionPlan(tuple(placed for placed, _ in self.tensors), 0)
        # Read, not mapped: the platform may cut the file short at any moment, and a mapping's fault would end the process.
        with self.path.open("rb") as file:
            return region_digest(plan, lambda offset, length: read_at(file, starts[offset, length], length)).hex()


def read_at(file: BinaryIO, at: int, length: int) -> bytes:
    """`length` bytes of a file from byte `at`, fewer at its end."""
    file.seek(at)
    return file.read(length)


def map_weights(path: Path, plan: RegionPlan) -> WeightsMap:
    """Check that a file holds exactly the plan's tensors, each with its dtype and shape.

    Raises:
        InvalidData: not such a file; the message names the tensor and the reason.
    """
    header, data_start, size = _header(path)
    names = {placed.spec.name for placed in plan.tensors}
    odd = sorted(set(header) ^ names)
    if odd:
        state = "is not in the weights file" if odd[0] in names else "is in the weights file but not in the program"
        raise InvalidData(
            f"Tensor {odd[0]!r} {state}", code="weights-mismatch", remedy="Use this program's own weights."
        )
    return WeightsMap(path, tuple((placed, _place(placed, header, data_start, size)) for placed in plan.tensors))


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise InvalidData("The weights file is not a safetensors file", code="weights-malformed")
        raw = file.read(length)
    try:
        header = json_value(raw)
    except BadRequest as error:
        raise InvalidData(f"The weights file's header is {error.detail}", code="weights-malformed") from error
    if not isinstance(header, dict):
        raise InvalidData("The weights file's header is not an object", code="weights-malformed")
    header.pop("__metadata__", None)
    return header, 8 + length, size


def _place(placed: Placed, header: dict[str, Any], data_start: int, size: int) -> int:
    entry, spec = header[placed.spec.name], placed.spec
    try:
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], tuple(entry["shape"])
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidData(f"Tensor {spec.name!r} has a malformed header entry", code="weights-malformed") from error
    if dtype != DTYPES[spec.dtype] or shape != spec.shape:
        raise InvalidData(
            f"Tensor {spec.name!r} has another dtype or shape than the program declares", code="weights-mismatch",
            expected=f"{DTYPES[spec.dtype]} {list(spec.shape)}", got=f"{dtype} {list(shape)}",
        )  # fmt: skip
    if not (isinstance(begin, int) and begin >= 0 and end == begin + placed.size_bytes and data_start + end <= size):
        raise InvalidData(f"Tensor {spec.name!r} does not lie inside the weights file", code="weights-malformed")
    return data_start + begin


def write_header(file: BinaryIO, plan: RegionPlan) -> None:
    """The header of an export of `plan`; the tensors' bytes must follow in the plan's order, without padding."""
    entries: dict[str, Any] = {}
    at = 0
    for placed in plan.tensors:
        spec = placed.spec
        entries[spec.name] = {
            "dtype": DTYPES[spec.dtype], "shape": list(spec.shape), "data_offsets": [at, at + placed.size_bytes],
        }  # fmt: skip
        at += placed.size_bytes
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)  # the data starts 8-byte aligned, as safetensors' own writer does it
    file.write(len(raw).to_bytes(8, "little") + raw)
