"""Given weights as a file on a hostile disk: read once, in any order of tensors; what is not finite is found wherever it stands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.files import PIECE, CheckedFile
from orchestrator.weights import first_not_finite, map_weights
from shared.canonical import sha256
from shared.claims.layout import ALIGN, Placed, RegionPlan, region_digest, tensor_bytes
from shared.claims.program import TensorSpec
from shared.errors import InvalidData, VerificationFailed

SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "b.weight": ("float32", (300, 7)), "a.count": ("int64", ()), "c.none": ("float32", (0,)), "a.bias": ("float64", (5,)),
    "d.bias": ("float64", (5,)),     "z.mask": ("uint8", (3,)),
}  # fmt: skip


def plan() -> RegionPlan:
    placed, offset = [], 0
    for name, (dtype, shape) in SHAPES.items():
        spec = TensorSpec(name=name, dtype=dtype, shape=shape)  # type: ignore[arg-type]  # literals
        placed.append(Placed(spec, offset, tensor_bytes(spec)))
        offset += -(-tensor_bytes(spec) // ALIGN) * ALIGN
    return RegionPlan(tuple(placed), offset)


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(3)
    return {name: np.asarray(draw.normal(size=shape) * 9).astype(dtype) for name, (dtype, shape) in SHAPES.items()}


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, bytes]:
    data = safetensors.numpy.save(arrays())
    (tmp_path / "weights").write_bytes(data)
    return tmp_path / "weights", data


@pytest.mark.parametrize("piece", [1, 7, 4096, PIECE])
def test_the_pieces_fill_the_region_whatever_the_files_order(stored: tuple[Path, bytes], piece: int) -> None:
    path, data = stored
    weights = map_weights(path, sha256(data).hex(), plan())
    region = bytearray(plan().length)
    for offset, part in weights.region_pieces(piece):
        assert 0 < len(part) <= piece
        region[offset : offset + len(part)] = part
    for placed in plan().tensors:
        assert bytes(region[placed.offset : placed.offset + placed.size_bytes]) == arrays()[placed.spec.name].tobytes()
    digest = region_digest(plan(), lambda offset, length: bytes(region[offset : offset + length])).hex()
    assert weights.region_digest() == digest
    weights.check_finite()


def test_a_disk_that_shows_something_else_is_noticed_by_the_reading_itself(stored: tuple[Path, bytes]) -> None:
    path, data = stored
    weights = map_weights(path, sha256(data).hex(), plan())
    for at in range(8, len(data), 97):
        changed = bytearray(data)
        changed[at] ^= 4
        path.write_bytes(changed)
        if at < len(weights.head):
            list(weights.region_pieces(PIECE))  # the header counts as it was read when the tensors were placed by it
            continue
        with pytest.raises(VerificationFailed) as caught:
            list(weights.region_pieces(PIECE))
        assert caught.value.code == "stored-file-changed"
    for other in (data[:-1], data + b"x", data[: len(weights.head)]):
        path.write_bytes(other)
        for read in (lambda: list(weights.region_pieces(64)), weights.check_finite):
            with pytest.raises(VerificationFailed):
                read()


def test_a_header_shown_for_the_placing_only_is_noticed(stored: tuple[Path, bytes]) -> None:
    """The disk swaps two names of one shape while the tensors are placed, and shows the true file when it is read."""
    path, data = stored
    names = (b'"a.bias"', b'"d.bias"')
    head = data[: data.index(b"}}") + 2]
    swapped = names[0].join(part.replace(names[0], names[1]) for part in head.split(names[1]))
    assert (len(swapped), swapped != head) == (len(head), True)
    path.write_bytes(swapped + data[len(head) :])
    weights = map_weights(path, sha256(data).hex(), plan())
    path.write_bytes(data)
    with pytest.raises(VerificationFailed) as caught:
        list(weights.region_pieces(PIECE))
    assert caught.value.code == "stored-file-changed"


def test_what_is_not_finite_is_named_once_the_file_is_known_to_be_the_owners(stored: tuple[Path, bytes]) -> None:
    path, _ = stored
    spoilt = arrays()
    spoilt["b.weight"][299, 6] = np.nan
    spoilt["a.bias"][4] = np.inf
    data = safetensors.numpy.save(spoilt)
    path.write_bytes(data)
    with pytest.raises(InvalidData, match=r"'a.bias' holds a value that is not finite, element 4 of 5") as caught:
        map_weights(path, sha256(data).hex(), plan()).check_finite()
    assert (caught.value.code, caught.value.status) == ("weights-not-finite", 422)
    with pytest.raises(VerificationFailed) as changed:
        map_weights(path, "ab" * 32, plan()).check_finite()
    assert changed.value.code == "stored-file-changed"


@settings(max_examples=200)
@given(st.lists(st.floats(width=32), max_size=40), st.sampled_from(["float32", "float64"]))
def test_the_first_that_is_not_finite(values: list[float], dtype: str) -> None:
    data = np.array(values, dtype).tobytes()
    wrong = [number for number, value in enumerate(values) if not math.isfinite(value)]
    assert first_not_finite(dtype, data) == (wrong[0] if wrong else None)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_are_finite(dtype: str) -> None:
    assert first_not_finite(dtype, b"\xff" * 8) is None


def test_a_reader_that_stops_early_is_not_told_that_the_file_changed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")

    def stop_early() -> None:
        with CheckedFile(tmp_path / "f", "00" * 32) as file:
            assert file.read(2) == b"ab"
            raise KeyError

    with pytest.raises(KeyError):
        stop_early()
    with pytest.raises(VerificationFailed), CheckedFile(tmp_path / "f", "00" * 32):
        pass
    with CheckedFile(tmp_path / "f", sha256(b"abc").hex()) as file:
        assert file.read(1) == b"a"
