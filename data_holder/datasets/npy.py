"""The array that the bytes of a .npy file describe (NumPy NEP 1, versions 1.0 and 2.0), over those bytes. Knows no file; parses no Python.

The header is a Python literal, and NumPy has Python's own parser read it. In CPython before 3.11.8 that parser counts its depth for all
threads together (gh-106905): two datasets opened at once, and one of them met `SystemError`. So the few literals that NumPy writes are
read here by a grammar of their own; whatever else a header may say is refused.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.findings import UnfitData, refusal
from data_holder.datasets.values import Array

NPY_MAGIC: Final = b"\x93NUMPY"
_MAX_HEADER: Final = 1 << 16
_LENGTHS: Final = {b"\x01\x00": struct.Struct("<H"), b"\x02\x00": struct.Struct("<I")}
_SIZE: Final = r"\d{1,18}L?\s*"  # the L is Python 2's
_KEY: Final = re.compile(r"""\s*(['"])(descr|fortran_order|shape)\1\s*:\s*""")
_VALUES: Final = {
    "descr": re.compile(r"""(['"])(?P<value>[^'"\\]*)\1|(?P<structured>\[)"""),
    "fortran_order": re.compile(r"(?P<value>True|False)"),
    "shape": re.compile(rf"\(\s*(?P<value>(?:{_SIZE},\s*(?:{_SIZE},\s*)*(?:{_SIZE})?)?)\)"),
}
_NUMBERS: Final = re.compile(r"[<>|=]?[biuf]\d{1,2}")


def npy_view(data: NDArray[np.uint8], name: str) -> Array:
    """The array in `data` (the file's bytes); `name` is the file's, for people.

    Raises:
        UnfitData: not .npy, cut short, or Python objects (which only a pickle could load).
    """
    text, start = _header(data, name)
    said = _literals(text, name)
    try:
        dtype = np.dtype(said["descr"]) if _NUMBERS.fullmatch(said["descr"]) else None
    except TypeError:  # a size that no such number has
        dtype = None
    if dtype is None:
        raise _no_numbers(name)
    shape = tuple(int(size.rstrip("L")) for size in re.findall(_SIZE.removesuffix(r"\s*"), said["shape"]))
    size = math.prod(shape) * dtype.itemsize
    if start + size > len(data):
        raise refusal(
            "data-malformed", f"is cut short: {len(data)} bytes of {start + size}", name, remedy="copy it again"
        )
    order: Any = "F" if said["fortran_order"] == "True" else "C"
    try:
        return data[start : start + size].view(dtype).reshape(shape, order=order)
    except ValueError:  # more dimensions than an array has, or empty and yet larger than memory can be
        raise _malformed(name) from None


def _header(data: NDArray[np.uint8], name: str) -> tuple[str, int]:
    """The header's text, and where the numbers begin."""
    head = data[:_MAX_HEADER].tobytes()
    magic, version = len(NPY_MAGIC), len(NPY_MAGIC) + 2
    length = _LENGTHS.get(head[magic:version])
    if not head.startswith(NPY_MAGIC) or length is None or len(head) < version + length.size:
        raise _malformed(name)
    start = version + length.size + length.unpack_from(head, version)[0]
    if start > len(head):
        raise _malformed(name)
    return head[version + length.size : start].decode("latin-1"), start


def _literals(text: str, name: str) -> dict[str, str]:
    """What a header says of each of its three keys."""
    said, text = dict[str, str](), text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise _malformed(name)
    rest = text[1:-1].rstrip()
    while rest:
        key = _KEY.match(rest)
        value = _VALUES[key[2]].match(rest, key.end()) if key else None
        if key is None or value is None or key[2] in said:
            raise _malformed(name)
        if value.groupdict().get("structured"):
            raise _no_numbers(name)
        said[key[2]], rest = value["value"], rest[value.end() :].lstrip()
        if rest and not rest.startswith(","):
            raise _malformed(name)
        rest = rest[1:]
    if len(said) != len(_VALUES):
        raise _malformed(name)
    return said


def _malformed(name: str) -> UnfitData:
    return refusal("data-malformed", "is no .npy file of version 1 or 2", name, remedy="save it with numpy.save")


def _no_numbers(name: str) -> UnfitData:
    reason = "holds something else than plain numbers"
    return refusal("data-wrong-type", reason, name, remedy="save plain numeric arrays")
