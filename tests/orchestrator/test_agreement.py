"""Datasets of several holders, compared by what their approvals say of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.sessions.agreement import DECADES_APART, Finding, compare, mismatches
from shared.claims.profile import DatasetProfile, FieldProfile, Scale, class_tag

SESSION, DIGEST = "s_aaaaaaaaaaaaaaaa", "ab" * 32


def tags(*names: str) -> tuple[str, ...]:
    return tuple(class_tag(SESSION, DIGEST, "x", name) for name in names)


def profile(**said: Any) -> DatasetProfile:
    return DatasetProfile(fields=(FieldProfile(**{"name": "x", "dtype": "float32", "shape": (2,), **said}),))


def label(*names: str, **said: Any) -> DatasetProfile:
    return profile(dtype="int64", shape=(), classes=tags(*names), **said)


def codes(found: list[Finding]) -> list[str]:
    return [finding.code for finding in found]


HARD = [
    ("dataset-units-differ", profile(units=("mg",)), profile(units=("g",))),
    ("dataset-units-differ", profile(units=("mg", "m")), profile(units=("mg",))),
    ("dataset-classes-differ", label("cat", "dog"), label("cat", "horse")),
    ("dataset-classes-differ", label("cat", "dog"), label("dog", "cat")),
    ("dataset-classes-differ", label("cat", "dog"), label("cat", "dog", "cow")),
    ("dataset-dtype-differs", profile(), profile(dtype="int32")),
    ("dataset-shape-differs", profile(), profile(shape=(3,))),
    ("dataset-fields-differ", profile(), profile(name="y")),
]


@pytest.mark.parametrize(("code", "one", "other"), HARD)
def test_what_cannot_be_trained_on_together_is_named_with_who_says_what(
    code: str, one: DatasetProfile, other: DatasetProfile
) -> None:
    [found] = mismatches({"a": one, "b": one, "c": other})
    assert found.code == code
    assert set(found.holders) == {"a", "b", "c"}
    assert "a, b: " in found.detail
    assert "; c: " in found.detail
    assert "--anew" in found.remedy


def test_a_unit_that_differs_in_some_elements_names_only_those() -> None:
    [found] = mismatches({"a": profile(units=("mg", "m")), "b": profile(units=("mg", "km"))})
    assert found.detail == "field x (element 1): a: m; b: km"


def test_the_same_classes_under_other_numbers_are_said_to_be_that() -> None:
    [found] = mismatches({"a": label("cat", "dog"), "b": label("dog", "cat")})
    assert "the same classes under other numbers" in found.detail
    assert "cat" not in found.detail, "names never travelled"


def test_one_unit_for_all_elements_is_that_unit_for_each() -> None:
    assert compare({"a": profile(units=("mg",)), "b": profile(units=("mg", "mg"))}) == []


def test_what_only_some_say_is_a_warning_and_holds_nothing() -> None:
    found = compare({"a": profile(units=("mg",)), "b": profile(), "c": None})
    assert codes(found) == ["dataset-undeclared", "dataset-not-profiled"]
    assert [finding.holders for finding in found] == [("b",), ("c",)]
    assert not any(finding.holds for finding in found)
    assert compare({"a": None, "b": None}) == [], "where nobody says anything there is nothing to compare with"


def test_a_size_a_hundred_times_another_is_a_warning_that_names_the_element() -> None:
    small, large = Scale(size=-1, spread=1), Scale(size=2, spread=1)
    [found] = compare({"a": profile(scales=(small, small)), "b": profile(scales=(small, large))})
    assert (found.code, found.severity, found.holders) == ("dataset-size-differs", "warning", ("a", "b"))
    assert found.detail.startswith("field x (element 1): the usual size of values differs about 100-fold or more: ")
    assert "a: about 10^-1; b: about 10^2" in found.detail


def test_logarithms_on_one_side_are_found_by_the_spread() -> None:
    plain, logs = Scale(size=1, spread=4), Scale(size=0, spread=1)
    assert codes(compare({"a": profile(scales=(plain, plain)), "b": profile(scales=(logs, plain))})) == [
        "dataset-spread-differs"
    ]


def test_columns_that_one_says_nothing_of_are_left_out() -> None:
    far = Scale(size=9, spread=0)
    assert compare({"a": profile(scales=(None, far)), "b": profile(scales=(far, far))}) == []
    assert compare({"a": profile(), "b": profile(scales=(far, far))}) == [], "a policy may forbid them"


def test_a_class_that_only_one_lacks_is_a_warning() -> None:
    [found] = compare({"a": label("cat", "dog", present=(True, True)), "b": label("cat", "dog", present=(True, False))})
    assert (found.code, found.holders) == ("dataset-class-absent", ("b",))
    assert found.detail.endswith("class 1 at b")


def test_tags_of_one_session_say_nothing_in_another() -> None:
    assert class_tag(SESSION, DIGEST, "x", "cat") == class_tag(SESSION, DIGEST, "x", "cat")
    others = {
        class_tag("s_b", DIGEST, "x", "cat"),
        class_tag(SESSION, "cd" * 32, "x", "cat"),
        class_tag(SESSION, DIGEST, "y", "cat"),
    }
    assert len(others | {class_tag(SESSION, DIGEST, "x", "cat")}) == 4


SCALES = st.lists(
    st.none() | st.builds(Scale, size=st.integers(-12, 15), spread=st.integers(0, 27)), min_size=2, max_size=2
)
SOME = st.builds(
    lambda scales, units: profile(scales=tuple(scales), units=tuple(units)),
    SCALES, st.sampled_from([(), ("mg",), ("g",), ("mg", "g")]),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from("abcdef"), st.none() | SOME, min_size=1))
def test_a_dataset_never_differs_from_itself_and_order_decides_nothing(
    profiles: dict[str, DatasetProfile | None],
) -> None:
    for said in profiles.values():
        assert mismatches({"one": said, "other": said}) == []
        assert compare({"one": said, "other": said}) == []
    turned = dict(reversed(list(profiles.items())))
    assert sorted(codes(compare(profiles))) == sorted(codes(compare(turned)))
    sizes = [s.size for p in profiles.values() if p for s in p.fields[0].scales if s]
    if not sizes or max(sizes) - min(sizes) < DECADES_APART:
        assert "dataset-size-differs" not in codes(compare(profiles))


def test_a_page_of_findings_stays_a_page_however_many_holders_and_columns_there_are() -> None:
    many = {
        f"h{number}": FieldProfile(
            name="x", dtype="float32", shape=(256,), units=[f"{unit}{number}" for unit in range(256)],
            scales=[Scale(size=number % 20 - 5, spread=number % 20)] * 256,
        )
        for number in range(100)
    }  # fmt: skip
    found = compare({holder: DatasetProfile(fields=(field,)) for holder, field in many.items()})
    assert codes(found) == ["dataset-units-differ", "dataset-size-differs", "dataset-spread-differs"]
    assert all(len(finding.detail) < 500 for finding in found)
    assert "h0: 00, 10, 20, 30 and 252 more" in found[0].detail
    assert found[0].detail.endswith("and 96 more")


@pytest.mark.parametrize("unit", ["m\ng", "m\u202eg", "\x9bm", "", "g" * 33])
def test_a_unit_cannot_write_over_a_line_in_somebodys_terminal(unit: str) -> None:
    with pytest.raises(ValidationError):
        profile(units=(unit,))
