"""Canonical JSON is what `rfc8785` says it is, byte for byte, for whatever it takes; and what it refuses is refused."""

from __future__ import annotations

import enum
import struct
from collections import OrderedDict
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from shared.canonical import json_bytes, json_value
from shared.errors import BadRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LARGEST = (1 << 53) - 1
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | FLOATS | TEXT,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(TEXT, inner),
)


class Word(enum.StrEnum):
    ONE = "one"


class Number(enum.IntEnum):
    SEVEN = 7


@given(VALUES)
@example({"\U0001f600": 1, "\ufb33": 2, "\u20ac": 3, "\r": 4, "1": 5, "\x80": 6, "": 7})
@example({Word.ONE: Word.ONE, "seven": Number.SEVEN, "ordered": OrderedDict(b=1, a=2)})
@example([0.0, -0.0, 1.0, -1.5, 1e-4, 1e-5, 1e-6, 1e-7, 1e15, 1e16, 1e20, 1e21, 5e-324, 123456789012345680.0])
@example('\x00\x1f"\\/\b\f\n\r\t\x7f\u2028')
def test_it_is_what_the_library_writes(value: Any) -> None:
    assert json_bytes(value) == rfc8785.dumps(value)


@given(st.binary(min_size=8, max_size=8))
def test_every_float_is_written_as_ecmascript_writes_it(bits: bytes) -> None:
    [value] = struct.unpack("d", bits)
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.FloatDomainError:
        with pytest.raises(BadRequest):
            json_bytes(value)
    else:
        assert json_bytes(value) == expected


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), LARGEST + 1, -LARGEST - 1, {1: 2}, {None: 1}, "\ud800", {"\ud800": 1}, {1}, b"x"]
)  # fmt: skip
def test_what_has_no_canonical_form_is_refused_wherever_it_stands(value: Any) -> None:
    for around in (value, [value], {"x": {"y": value}}):
        with pytest.raises(BadRequest):
            json_bytes(around)


def test_what_is_nested_too_deep_is_refused_on_either_way() -> None:
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(BadRequest):
        json_bytes(deep)
    with pytest.raises(BadRequest):
        json_value(b"[" * 20_000 + b"]" * 20_000)
