"""Sizes of values in decades: what a profile may say of records, and that no single record decides it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from data_holder.datasets import Look, open_dataset
from data_holder.datasets.scales import decades, scale_of, sizeable
from orchestrator.sessions.agreement import DECADES_APART
from shared.claims.profile import LEAST_DECADE, LEAST_OF_A_CLASS, LEAST_RECORDS, MOST_COLUMNS, MOST_DECADE, Scale
from shared.claims.records import RecordField, RecordSchema

WIDTH = MOST_DECADE - LEAST_DECADE + 1
INSIDE = st.floats(1e-9, 1e11)
COLUMN = arrays(np.float64, st.integers(LEAST_RECORDS, 400), elements=INSIDE)


def counts_of(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.bincount(decades(values) - LEAST_DECADE, minlength=WIDTH)


def scale(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Scale:
    found = scale_of(counts_of(values))
    assert found is not None
    return found


def test_a_decade_begins_at_its_power_on_every_machine() -> None:
    values = np.array([0.0, 1.0, 9.999999, 10.0, 999.9, 1000.0, -1000.0, 1e-300, 1e300, 0.001, 0.00099])
    assert decades(values).tolist() == [0, 0, 1, 2, 3, 3, LEAST_DECADE, MOST_DECADE, -3, -4]
    assert decades(np.array([1000.0], np.float32)).tolist() == [3]
    assert decades(np.array([np.iinfo(np.int64).min])).tolist() == [MOST_DECADE]


@given(COLUMN)
def test_other_units_a_hundredfold_apart_are_always_found_and_less_than_tenfold_never(values: np.ndarray) -> None:  # type: ignore[type-arg]
    here = scale(values)
    assert abs(scale(values * 1000).size - here.size) >= DECADES_APART
    assert abs(scale(values * 100.00001).size - here.size) >= DECADES_APART
    assert abs(scale(values * 9.99).size - here.size) < DECADES_APART
    assert scale(values[::-1]) == here, "order says nothing"


@given(COLUMN, st.integers(0, 99), st.floats(-1e300, 1e300))
def test_one_record_moves_a_size_to_that_of_a_neighbouring_rank_at_most(
    values: np.ndarray,  # type: ignore[type-arg]
    place: int,
    other: float,
) -> None:
    """Whatever one record says, a percentile stays within one rank of where it was: an extreme value never shows."""
    changed = values.copy()
    changed[place] = other if other != 0 else 1.0
    before, rank = np.sort(decades(values)), -(-len(values) // 2)
    assert before[max(0, rank - 2)] <= scale(changed).size <= before[min(len(values) - 1, rank)]


def test_too_few_values_say_nothing_and_zeros_do_not_count() -> None:
    few = np.concatenate([np.full(LEAST_RECORDS - 1, 5.0), np.zeros(10_000)])
    assert scale_of(counts_of(few)) is None
    flag = np.tile([0.0, 1.0], LEAST_RECORDS)
    assert scale(flag) == scale(np.ones(2 * LEAST_RECORDS)), "how common a flag is cannot be read from it"


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (RecordField(name="x", dtype="float32"), True),
        (RecordField(name="x", dtype="int64"), True),
        (RecordField(name="x", dtype="int64", min=0, max=9), False),
        (RecordField(name="x", dtype="uint8"), False),
    ],
)
def test_fields_of_few_possible_values_state_no_size(field: RecordField, told: bool) -> None:
    assert sizeable(field) is told


def test_a_look_tells_columns_apart_and_marks_classes_that_are_there(tmp_path: Path) -> None:
    many, rng = 4000, np.random.default_rng(1)
    x = rng.lognormal(0.0, 0.3, (many, 2)).astype("<f4") * np.array([1.0, 1000.0], "<f4")
    y = np.repeat([0, 1, 2], [many - 2000 - 19, 2000, LEAST_OF_A_CLASS - 1]).astype("<i8")
    np.savez(tmp_path / "d.npz", x=x, y=y)
    fields = (RecordField(name="x", dtype="float32", shape=(2,)), RecordField(name="y", dtype="int64", min=0, max=9))
    with open_dataset(tmp_path / "d.npz", RecordSchema(fields=fields)) as dataset:
        look = Look(dataset, {"y": 4})
    first, second = look.scales["x"]
    assert first is not None
    assert second is not None
    assert second.size - first.size in (2, 3, 4)
    assert look.present == {"y": (True, True, False, False)}
    assert set(look.scales) == {"x"}


def test_a_field_of_very_many_elements_is_stated_as_a_whole(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.full((120, MOST_COLUMNS + 1), 7.0, "<f4"))
    schema = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(MOST_COLUMNS + 1,)),))
    with open_dataset(tmp_path / "d.npz", schema) as dataset:
        assert Look(dataset, {}).scales == {"x": (Scale(size=0, spread=0),)}
