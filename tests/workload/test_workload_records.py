"""Records: decoding equals NumPy's, and every value outside the schema is refused by field and record, never quoted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.workload import records
from gpu_agent.workload.records import check_records, decode_batch
from shared.claims.records import RecordField, RecordSchema
from shared.errors import InvalidData

DTYPES = ("uint8", "uint16", "int32", "int64", "float32")


def _schema(*fields: RecordField) -> RecordSchema:
    return RecordSchema(fields=fields)


MIXED = _schema(
    RecordField(name="flag", dtype="uint8", shape=(3,), max=9),
    RecordField(name="id", dtype="uint16", min=2, max=60000),
    RecordField(name="x", dtype="float32", shape=(2, 2), min=-1.5, max=1.5),
    RecordField(name="n", dtype="int32", min=-5),
    RecordField(name="label", dtype="int64", min=0, max=4),
)
NUMPY = np.dtype(
    [("flag", "u1", (3,)), ("id", "<u2"), ("x", "<f4", (2, 2)), ("n", "<i4"), ("label", "<i8")], align=False
)


def _sound(count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    rows = np.zeros(count, NUMPY)
    rows["flag"] = rng.integers(0, 10, (count, 3))
    rows["id"] = rng.integers(2, 60001, count)
    rows["x"] = rng.uniform(-1.5, 1.5, (count, 2, 2))
    rows["n"] = rng.integers(-5, 2**31, count)
    rows["label"] = rng.integers(0, 5, count)
    return rows


def _buffer(rows: np.ndarray) -> torch.Tensor:
    return torch.frombuffer(bytearray(rows.tobytes()), dtype=torch.uint8)


def test_decoding_equals_numpys_structured_view() -> None:
    rows = _sound(11)
    assert MIXED.record_bytes == NUMPY.itemsize
    batch = decode_batch(_buffer(rows), MIXED, 3, 9)
    for name in NUMPY.names or ():
        assert np.array_equal(batch[name].numpy(), rows[name][3:9]), name


def test_a_single_field_is_decoded_without_a_copy() -> None:
    buffer = torch.arange(40, dtype=torch.uint8)
    batch = decode_batch(buffer, _schema(RecordField(name="t", dtype="uint8", shape=(10,))), 1, 3)
    assert batch["t"].data_ptr() == buffer.data_ptr() + 10


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (-1, 3), (5, 4)])
def test_records_beyond_the_buffer_are_refused(start: int, stop: int) -> None:
    with pytest.raises(InvalidData):
        decode_batch(_buffer(_sound(11)), MIXED, start, stop)


def test_sound_records_pass_and_missing_ones_do_not() -> None:
    check_records(_buffer(_sound(500)), MIXED, 500)
    with pytest.raises(InvalidData, match="fewer than 501"):
        check_records(_buffer(_sound(500)), MIXED, 501)


BAD = [
    ("flag", 10, "above"),
    ("id", 1, "below"),
    ("id", 60001, "above"),
    ("x", 1.6, "above"),
    ("x", -1.6, "below"),
    ("x", float("nan"), "not a finite number"),
    ("x", float("inf"), "not a finite number"),
    ("n", -6, "below"),
    ("label", 5, "above"),
    ("label", -1, "below"),
    ("label", 2**62, "above"),
]


@pytest.mark.parametrize(("field", "value", "reason"), BAD)
def test_each_bad_value_is_refused_by_field_and_record(
    field: str, value: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_CHECK_BYTES", 37 * MIXED.record_bytes)  # the fault lies in the middle of a chunk
    rows = _sound(200)
    target = rows[field][123]
    if target.shape:
        target.flat[-1] = value
    else:
        rows[field][123] = value
    with pytest.raises(InvalidData, match=f"'{field}' of record 123 .*{reason}") as caught:
        check_records(_buffer(rows), MIXED, 200)
    assert caught.value.code == "record-out-of-range"
    check_records(_buffer(rows), MIXED, 123)


def test_a_float_bound_is_the_fields_own_precision() -> None:
    """0.1 as float32 is a little above 0.1; a record that holds exactly the bound is inside."""
    schema = _schema(RecordField(name="x", dtype="float32", min=-0.1, max=0.1))
    check_records(torch.tensor([0.1, -0.1]).view(torch.uint8), schema, 2)
    with pytest.raises(InvalidData):
        check_records(torch.tensor([np.nextafter(np.float32(0.1), np.float32(1))]).view(torch.uint8), schema, 1)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(["uint8", "uint16", "int32", "int64", "float32"]),
    low=st.floats(-3, 200), span=st.floats(1, 50), bounded=st.booleans(),
)  # fmt: skip
def test_the_least_record_is_a_valid_one(dtype: str, low: float, span: float, bounded: bool) -> None:
    least = max(low, 0.0) if dtype.startswith("u") else low
    high = least + span if bounded else None
    schema = _schema(RecordField(name="v", dtype=dtype, shape=(2,), min=least, max=high))  # type: ignore[arg-type]  # one of the literals
    batch = records.least_records(schema, 3)["v"]
    check_records(batch.contiguous().view(torch.uint8).flatten(), schema, 3)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(["uint8", "uint16", "int32", "int64"]),
    low=st.integers(-300, 70_000),
    high=st.integers(-300, 70_000),
    data=st.data(),
)
def test_refused_exactly_if_a_value_lies_outside(dtype: str, low: int, high: int, data: st.DataObject) -> None:
    info = np.iinfo(dtype)
    values = data.draw(st.lists(st.integers(max(info.min, -400), min(info.max, 70_100)), min_size=1, max_size=8))
    schema = _schema(RecordField.model_validate({"name": "v", "dtype": dtype, "min": low, "max": high}))
    buffer = torch.frombuffer(bytearray(np.array(values, dtype).tobytes()), dtype=torch.uint8)
    outside = [index for index, value in enumerate(values) if not low <= value <= high]
    if not outside:
        check_records(buffer, schema, len(values))
        return
    with pytest.raises(InvalidData, match="of record"):
        check_records(buffer, schema, len(values))
