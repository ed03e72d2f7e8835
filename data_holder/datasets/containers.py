"""Arrays inside .npy, .npz and .safetensors files, as views of the mapped bytes. Runs no pickle and loads no tensor library.

Layouts: NumPy NEP 1 (.npy versions 1 and 2), zip of .npy members (.npz), safetensors (8-byte little-endian length of the
JSON header, header, bytes).
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from data_holder.datasets.arrays import ArrayDataset, NamedArray
from data_holder.datasets.cache import converted
from data_holder.datasets.dataset import Dataset
from data_holder.datasets.files import HeldFile, hold, shown
from data_holder.datasets.findings import UnfitData, refusal
from data_holder.datasets.mappings import Mappings
from data_holder.datasets.npy import npy_view
from data_holder.datasets.options import DatasetOptions
from data_holder.datasets.values import Array
from shared.canonical import json_value
from shared.claims.records import RecordSchema
from shared.errors import BadRequest

_COPY_BYTES = 1 << 20
_MAX_SAFETENSORS_HEADER = 100_000_000  # the library's own limit
_LOCAL_HEADER = struct.Struct(
    "<4s5H3I2H"
)  # zip local file header (PKWARE APPNOTE 4.3.7); name and extra lengths come last
_SAFETENSORS_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_NO_ZIP: Final = (
    zipfile.BadZipFile,  # no archive, or its directory contradicts itself
    NotImplementedError,  # a compression or a version that zipfile does not know
    RuntimeError,  # a member is encrypted
    OSError,  # an offset leads out of the file
    EOFError,  # a member is cut
    struct.error,  # a header is cut
    zlib.error,  # what is called deflated is not
)
"""All that zipfile raises on hostile or unusual bytes."""


def open_npy(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """One .npy file for a program of one field, or a folder with `FIELD.npy` for each field.

    Raises:
        UnfitData: a missing field, or an array that does not fit.
    """
    if not path.is_dir() and len(records.fields) > 1:
        reason = f"holds one array, and the program's records have {len(records.fields)} fields"
        raise refusal(
            "data-missing-field", reason, shown(path.name), remedy="give a folder with FIELD.npy for each, or .npz"
        )
    maps = Mappings()
    held = [hold(path / f"{f.name}.npy", follow=False) if path.is_dir() else hold(path) for f in records.fields]
    arrays = {
        field.name: NamedArray(npy_view(maps.bytes_of(file), file.name), file.name)
        for field, file in zip(records.fields, held, strict=True)
    }
    return ArrayDataset("npy", records, arrays, held, maps)


def open_npz(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """A .npz archive whose members bear the fields' names; compressed members are unpacked once into the cache.

    Raises:
        UnfitData: no zip archive, a missing field, or an array that does not fit.
    """
    file, maps = hold(path), Mappings()
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            _all_present(records, members, file)
            arrays = {
                field.name: _member(archive, members[field.name], file, maps, options) for field in records.fields
            }
    except _NO_ZIP:
        raise refusal(
            "data-malformed", "is no readable .npz archive", file.name, remedy="save it with numpy.savez"
        ) from None
    return ArrayDataset("npz", records, arrays, [file], maps)


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: HeldFile, maps: Mappings, options: DatasetOptions
) -> NamedArray:
    name = f"{file.name}:{shown(info.filename)}"
    data = maps.bytes_of(file)
    if info.compress_type == zipfile.ZIP_STORED:
        fields = _LOCAL_HEADER.unpack_from(data[info.header_offset : info.header_offset + _LOCAL_HEADER.size].tobytes())
        start = info.header_offset + _LOCAL_HEADER.size + fields[-2] + fields[-1]
        return NamedArray(npy_view(data[start : start + info.file_size], name), name)

    def unpack(stream: BinaryIO) -> None:
        with archive.open(info) as member:
            while part := member.read(_COPY_BYTES):
                options.converting()
                stream.write(part)

    recipe = b"npz\0" + info.filename.encode()
    return NamedArray(npy_view(converted(maps, options, file, recipe, unpack), name), name)


def open_safetensors(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """A .safetensors file whose tensors bear the fields' names.

    Raises:
        UnfitData: not safetensors, a missing field, an unknown dtype, or a tensor that does not fit.
    """
    file, maps = hold(path), Mappings()
    data = maps.bytes_of(file)
    try:
        length = int.from_bytes(data[:8].tobytes(), "little")
        header = json_value(_judged(data[: 8 + min(length, _MAX_SAFETENSORS_HEADER)].tobytes(), file.size)[8:])
    except (SafetensorError, BadRequest, OSError):
        raise refusal(
            "data-malformed", "is no safetensors file", file.name, remedy="save it with safetensors"
        ) from None
    header.pop("__metadata__", None)
    _all_present(records, header, file)
    body = data[8 + length :]
    arrays = {field.name: NamedArray(_tensor(header[field.name], body, file), file.name) for field in records.fields}
    return ArrayDataset("safetensors", records, arrays, [file], maps)


def _judged(head: bytes, size: int) -> bytes:
    """The head of a file of `size` bytes, once the library has found header, offsets and lengths sound.

    The library maps what it judges and would fault with a file that is cut short: it is shown these bytes, followed by a hole.
    """
    with open(os.memfd_create("head"), "wb") as stand_in:
        stand_in.write(head)
        stand_in.truncate(size)
        with safe_open(f"/proc/self/fd/{stand_in.fileno()}", framework="numpy"):
            return head


def _tensor(entry: dict[str, Any], body: NDArray[np.uint8], file: HeldFile) -> Array:
    dtype = _SAFETENSORS_DTYPES.get(entry["dtype"])
    if dtype is None:
        raise refusal("data-wrong-type", f"dtype {entry['dtype']} is not one of NumPy's", file.name)
    start, end = entry["data_offsets"]
    return body[start:end].view(dtype).reshape(entry["shape"])


def _all_present(records: RecordSchema, names: Mapping[str, Any], file: HeldFile) -> None:
    missing = [field.name for field in records.fields if field.name not in names]
    if missing:
        reason = f"has no array for {', '.join(missing)}"
        error: UnfitData = refusal("data-missing-field", reason, file.name, field=missing[0],
                                   remedy="name the arrays as the program names its record fields")  # fmt: skip
        raise error
