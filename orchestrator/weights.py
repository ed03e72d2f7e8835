"""Safetensors files against a region plan: which bytes of the file go where in the model region, and back. Knows no tensor library.

Format: u64 little-endian header length ‖ JSON {name: {dtype, shape, data_offsets}} ‖ data (safetensors documentation, "Format").
Only this layout is read and written here, in pieces, so that a model larger than memory can pass through.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from orchestrator.files import PIECE, CheckedFile, reading
from shared.canonical import json_value
from shared.claims.layout import Placed, RegionPlan, region_digest
from shared.claims.records import ITEM_BYTES, SAFETENSORS
from shared.errors import BadRequest, InvalidData

MAX_HEADER_BYTES = 4 * 1024 * 1024


class Sink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes, /) -> int:
        """Take all of them; how many."""


@dataclass(frozen=True)
class WeightsMap:
    """A checked file: its first bytes as they were read, and for each tensor of the plan the offset of its bytes in the file.

    `sha256` (hex) is the file's name in a manifest. The file lies on the untrusted disk, where a second look may see something else; so
    what is used of it comes from one reading, which also says whether it was the named file.
    """

    path: Path
    sha256: str
    head: bytes
    tensors: tuple[tuple[Placed, int], ...]

    def region_pieces(self, piece_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset in the region, bytes), each at most `piece_bytes` long, in the file's order; the file is read once, to its end.

        Raises:
            VerificationFailed: after the last piece, when the bytes were not the named file's (code `stored-file-changed`).
        """
        for placed, done, data in self._read(piece_bytes):
            yield placed.offset + done, data

    def check_finite(self) -> None:
        """Every number of every tensor is one.

        Raises:
            InvalidData: it is not; names the tensor and the first such element (code `weights-not-finite`). VerificationFailed.
        """
        found: str | None = None
        for placed, done, data in self._read(PIECE):
            at = first_not_finite(placed.spec.dtype, data) if found is None else None
            if at is not None:
                element = done // ITEM_BYTES[placed.spec.dtype] + at
                found = f"Tensor {placed.spec.name!r} holds a value that is not finite, element {element} of {math.prod(placed.spec.shape)}"
        if found is not None:  # and the file is the named one: nobody but its owner put that value there
            raise InvalidData(found, code="weights-not-finite", remedy="Start from weights without NaN and infinity.")

    def _read(self, piece_bytes: int) -> Iterator[tuple[Placed, int, bytes]]:
        with CheckedFile(self.path, self.sha256, self.head) as file:
            for placed, _ in sorted(self.tensors, key=_in_file):
                for done in range(0, placed.size_bytes, piece_bytes):
                    wanted = min(piece_bytes, placed.size_bytes - done)
                    data = file.read(wanted)
                    if len(data) < wanted:
                        return  # cut short since it was mapped; `file` says so
                    yield placed, done, data

    def region_digest(self) -> str:
        """Digest (BLAKE3, hex) of a model region that holds exactly this file's tensors, as the disk shows them now."""
        # Offset and length name a tensor: one of size zero shares its offset with the next.
        starts = {(placed.offset, placed.size_bytes): start for placed, start in self.tensors}
        plan = RegionPlan(tuple(placed for placed, _ in self.tensors), 0)
        # Read, not mapped: the platform may cut the file short at any moment, and a mapping's fault would end the process.
        with reading(self.path), self.path.open("rb") as file:
            return region_digest(plan, lambda offset, length: read_at(file, starts[offset, length], length)).hex()


def read_at(file: BinaryIO, at: int, length: int) -> bytes:
    """`length` bytes of a file from byte `at`, fewer at its end."""
    file.seek(at)
    return file.read(length)


def _in_file(entry: tuple[Placed, int]) -> tuple[int, int]:
    placed, start = entry
    return start, placed.size_bytes


def first_not_finite(dtype: str, data: bytes) -> int | None:
    """Number of the first element that is NaN or infinite; None where all are finite, as integers always are."""
    import numpy as np  # here, because most orchestrators are never given weights, and a process pays for this by its memory

    if not dtype.startswith("float"):
        return None
    finite = np.isfinite(np.frombuffer(data, np.dtype(dtype).newbyteorder("<")))
    return None if finite.all() else int(finite.argmin())


def map_weights(path: Path, sha256: str, plan: RegionPlan) -> WeightsMap:
    """Check that a file holds exactly the plan's tensors, each with its dtype and shape, end to end.

    Raises:
        InvalidData: not such a file; the message names the tensor and the reason.
    """
    head, header, size = _header(path)
    names = {placed.spec.name for placed in plan.tensors}
    odd = sorted(set(header) ^ names)
    if odd:
        state = "is not in the weights file" if odd[0] in names else "is in the weights file but not in the program"
        raise InvalidData(
            f"Tensor {odd[0]!r} {state}", code="weights-mismatch", remedy="Use this program's own weights."
        )
    tensors = tuple((placed, _place(placed, header, len(head), size)) for placed in plan.tensors)
    at = len(head)
    for placed, start in sorted(tensors, key=_in_file):
        if start != at:
            raise InvalidData(f"Tensor {placed.spec.name!r} does not begin where the one before it ends", code="weights-malformed",
                              remedy="Write the file with the safetensors library.")  # fmt: skip
        at += placed.size_bytes
    if at != size:
        raise InvalidData("The weights file goes on after its last tensor", code="weights-malformed")
    return WeightsMap(path, sha256, head, tensors)


def _header(path: Path) -> tuple[bytes, dict[str, Any], int]:
    """The first bytes (length and JSON), the JSON's object, and the file's size."""
    with reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
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
    return prefix + raw, header, size


def _place(placed: Placed, header: dict[str, Any], data_start: int, size: int) -> int:
    entry, spec = header[placed.spec.name], placed.spec
    try:
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], tuple(entry["shape"])
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidData(f"Tensor {spec.name!r} has a malformed header entry", code="weights-malformed") from error
    if dtype != SAFETENSORS[spec.dtype] or shape != spec.shape:
        raise InvalidData(
            f"Tensor {spec.name!r} has another dtype or shape than the program declares", code="weights-mismatch",
            expected=f"{SAFETENSORS[spec.dtype]} {list(spec.shape)}", got=f"{dtype} {list(shape)}",
        )  # fmt: skip
    if not (isinstance(begin, int) and begin >= 0 and end == begin + placed.size_bytes and data_start + end <= size):
        raise InvalidData(f"Tensor {spec.name!r} does not lie inside the weights file", code="weights-malformed")
    return data_start + begin


def write_header(file: Sink, plan: RegionPlan) -> None:
    """The header of an export of `plan`; the tensors' bytes must follow in the plan's order, without padding."""
    entries: dict[str, Any] = {}
    at = 0
    for placed in plan.tensors:
        spec = placed.spec
        entries[spec.name] = {
            "dtype": SAFETENSORS[spec.dtype], "shape": list(spec.shape), "data_offsets": [at, at + placed.size_bytes],
        }  # fmt: skip
        at += placed.size_bytes
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)  # the data starts 8-byte aligned, as safetensors' own writer does it
    file.write(len(raw).to_bytes(8, "little") + raw)
