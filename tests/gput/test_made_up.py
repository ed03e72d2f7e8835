"""Records that benches and plans make up fit what programs declare. Knows no bench."""

from __future__ import annotations

import numpy as np

from gput.local.made_up import arrays, with_edges
from shared.claims.records import RecordField, RecordSchema


def test_made_up_records_are_within_their_ranges() -> None:
    fields = (
        RecordField(name="a", dtype="uint8", shape=(3,), min=2, max=5), RecordField(name="b", dtype="float32", min=-9, max=-8),
        RecordField(name="c", dtype="int64", shape=(2, 2), max=-4), RecordField(name="d", dtype="uint16"),
        RecordField(name="e", dtype="float32", min=7), RecordField(name="f", dtype="int32", min=0, max=2**31 - 1),
    )  # fmt: skip
    found = arrays(RecordSchema(fields=fields), 50, seed=1)
    for field in fields:
        values = found[field.name]
        assert (values.dtype, values.shape) == (field.dtype, (50, *field.shape))
        assert values.min() >= (field.min if field.min is not None else -4)
        assert values.max() <= (field.max if field.max is not None else 7)
    assert set(found["a"].flatten()) == {2, 3, 4, 5}


def test_a_declared_range_beyond_the_type_ends_where_the_type_does() -> None:
    """Also one whose width no float has."""
    fields = (
        RecordField(name="a", dtype="float32", min=-1e39, max=1e39), RecordField(name="b", dtype="float32", min=-1.5e308, max=1.5e308),
    )  # fmt: skip
    found = with_edges(RecordSchema(fields=fields), 50, seed=1)
    most = float(np.finfo(np.float32).max)
    for values in found.values():
        assert values[:2].tolist() == [-most, most]
        assert np.isfinite(values).all()
        assert (values[2:] < 0).any()
        assert (values[2:] > 0).any()
