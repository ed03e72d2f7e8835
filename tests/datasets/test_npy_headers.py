"""Headers of .npy files: whatever NumPy writes is read as NumPy reads it, whatever it does not is refused, and no Python is parsed."""

from __future__ import annotations

import ast
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as numpys

from data_holder.datasets import UnfitData
from data_holder.datasets.npy import npy_view

DTYPES = ["?", "u1", "i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8"]
PLAIN = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }"


def written(header: str, body: bytes = bytes(24), version: bytes = b"\x01\x00") -> np.ndarray[Any, np.dtype[np.uint8]]:
    length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return np.frombuffer(b"\x93NUMPY" + version + length + header.encode("latin-1") + body, np.uint8)


@given(
    dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 4), max_size=4).map(tuple), fortran=st.booleans(),
    version=st.sampled_from([(1, 0), (2, 0)]),
)  # fmt: skip
def test_what_numpy_writes_is_read_as_numpy_reads_it(
    dtype: str, shape: tuple[int, ...], fortran: bool, version: tuple[int, int]
) -> None:
    count = int(np.prod(shape, dtype=np.int64))
    values = np.arange(count).astype(dtype).reshape(shape, order="F" if fortran else "C")
    stream = io.BytesIO()
    numpys.write_array(stream, values, version, allow_pickle=False)
    read = npy_view(np.frombuffer(stream.getvalue(), np.uint8), "x.npy")
    assert read.dtype == values.dtype
    assert read.shape == values.shape
    assert np.array_equal(read, values)


@pytest.mark.parametrize(
    "header",
    [
        PLAIN,
        '{"shape":(2,3),"fortran_order":False,"descr":"<i4"}',
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 3L)}  \n",
        "{ 'descr' : '<i4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , }",
    ],
)
def test_other_writers_forms_are_read(header: str) -> None:
    body = np.arange(6, dtype="<i4")
    for version in (b"\x01\x00", b"\x02\x00"):
        assert npy_view(written(header, body.tobytes(), version), "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("header", "code"),
    {
        "": "data-malformed",
        "{}": "data-malformed",
        PLAIN.replace("(2, 3)", "(2 3)"): "data-malformed",
        PLAIN.replace("(2, 3)", "(6)"): "data-malformed",
        PLAIN.replace("(2, 3)", "(-2, -3)"): "data-malformed",
        PLAIN.replace("(2, 3)", "(2, 3" + ", 1" * 70 + ")"): "data-malformed",
        PLAIN.replace("(2, 3)", f"(0, {10**17}, {10**17})"): "data-malformed",
        PLAIN.replace("(2, 3)", "(20, 3)"): "data-malformed",
        PLAIN.replace("False", "0"): "data-malformed",
        PLAIN.replace(", 'shape': (2, 3)", ""): "data-malformed",
        PLAIN.replace("'shape'", "'descr'"): "data-malformed",
        PLAIN.replace("}", "'more': 1}"): "data-malformed",
        PLAIN.replace("'<i4'", "'<i4' + __import__('os').name"): "data-malformed",
        PLAIN.replace("'<i4'", "'|O'"): "data-wrong-type",
        PLAIN.replace("'<i4'", "'<i3'"): "data-wrong-type",
        PLAIN.replace("'<i4'", "'<M8[ns]'"): "data-wrong-type",
        PLAIN.replace("'<i4'", "'i4,i4'"): "data-wrong-type",
        PLAIN.replace("'<i4'", "[('a', '<i4')]"): "data-wrong-type",
    }.items(),
)
def test_whatever_else_is_refused(header: str, code: str) -> None:
    with pytest.raises(UnfitData) as refused:
        npy_view(written(header), "x.npy")
    assert refused.value.code == code
    assert refused.value.finding.file == "x.npy"


@pytest.mark.parametrize("cut", range(12))
def test_a_header_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(UnfitData, match=r"no \.npy file"):
        npy_view(written(PLAIN)[:cut], "x.npy")


def test_no_python_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's parser, asked by two threads at once, may fail in either (CPython before 3.11.8): a holder's dataset was not opened."""

    def raced(*_: Any, **__: Any) -> None:
        raise SystemError("AST constructor recursion depth mismatch (before=21, after=15)")

    monkeypatch.setattr(ast, "parse", raced)
    assert npy_view(written(PLAIN), "x.npy").shape == (2, 3)
