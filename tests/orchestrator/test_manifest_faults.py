"""A manifest written by hand, with one thing wrong: the field, what is wrong with it and what to write instead are named."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from shared.canonical import json_value
from shared.claims.faults import MAX_SHOWN, MODELS, MOST_VALUES, ManifestRefused, judged
from shared.claims.manifest import Manifest
from shared.claims.shape import MAX_FIELDS, MAX_PART, MOST_FAULTS
from tests.orchestrator.orchestrator_samples import manifest

Edit = dict[str, Any]


def written(**changes: Any) -> bytes:
    document = {**manifest().model_dump(mode="json"), **changes}
    return json.dumps({name: value for name, value in document.items() if value != "left out"}, indent=2).encode()


ENTRY = {"holder": "h0", "key": "5f" * 32, "evidence": {"roots": ["EMULATED"]}}

WRONG: dict[str, tuple[Edit, str, str, str]] = {
    "left out": ({"rounds": "left out"}, "rounds", "is missing", "State it"),
    "inside": ({"validation": {"records": 3}}, "validation.dataset", "is missing", "State it"),
    "misspelt": ({"batch_sise": 4}, "batch_sise", "no such field", "write batch_size if that is what you mean"),
    "misspelt inside": (
        {"acceptance": {"max_update_ration": 3}}, "acceptance.max_update_ration", "no such field", "write max_update_ratio if",
    ),
    "nothing like it": ({"zzzz": 4}, "zzzz", "no such field", "Remove the field."),
    "no such mode": ({"travel_mode": "courier"}, "travel_mode", "'courier' is not supported", "Write "),
    "no such optimiser": (
        {"training": {"optimizer": {"kind": "lion"}}}, "training.optimizer", "'lion' is not supported", "Write one of 'adamw', 'sgd'.",
    ),
    "no kind": ({"training": {"optimizer": {"lr": 0.1}}}, "training.optimizer", "does not say its kind", '"kind": "adamw"'),
    "digest cut short": ({"program": "ab12"}, "program", "not 96 lower-case hexadecimal digits (it has 4", "gput program inspect"),
    "digest in capitals": ({"program": "AB" * 48}, "program", "not 96 lower-case hexadecimal digits", "gput program inspect"),
    "holder's key": (
        {"roster": [{**ENTRY, "key": "SHA256:xyz"}]}, "roster.0.key", "not 64 lower-case hexadecimal digits", "gput party list",
    ),
    "holder's name": ({"roster": [{**ENTRY, "holder": "North!"}]}, "roster.0.holder", "does not have the form", "Correct"),
    "twice": ({"roster": [ENTRY, {**ENTRY, "key": "6e" * 32}]}, "manifest", "a holder is named twice", "Correct"),
    "text for a number": ({"rounds": "many"}, "rounds", "must be a valid integer", "Correct"),
    "too few": ({"rounds": 0}, "rounds", "must be greater than or equal to 1", "Correct"),
    "nobody": ({"roster": []}, "roster", "has 0 entries", "Write at least 1."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_field_reason_and_remedy(name: str) -> None:
    changes, field, reason, remedy = WRONG[name]
    with pytest.raises(ManifestRefused) as refused:
        judged(written(**changes), "my.json: ")
    [entry] = refused.value.errors or []
    assert entry["field"] == field
    assert reason in entry["reason"]
    assert remedy in entry["remedy"] == refused.value.remedy
    assert refused.value.detail == f"my.json: {field}: {entry['reason']}"


def test_every_fault_comes_at_once() -> None:
    with pytest.raises(ManifestRefused) as refused:
        judged(written(rounds=0, programme="x", program="left out"))
    assert {entry["field"] for entry in refused.value.errors or []} == {"rounds", "programme", "program"}
    assert "(and 2 more)" in refused.value.detail


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"rounds": 1,}', "line 1 column"),
        (b"{'rounds': 1}", "line 1 column 2"),
        (b"\xff", "not strict JSON"),
        (b"[]", "manifest: "),
    ],
)
def test_what_is_no_json_object_says_where_it_ends(text: bytes, says: str) -> None:
    with pytest.raises(ManifestRefused) as refused:
        judged(text)
    assert says in refused.value.detail
    assert refused.value.remedy


def inside(kind: Any) -> Iterator[type[BaseModel]]:
    """Every model that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for info in kind.model_fields.values():
            yield from inside(info.annotation)
    for part in get_args(kind):
        yield from inside(part)


def test_the_models_of_a_manifest_are_all_of_them() -> None:
    """A field of one that is left out would be in no page and in no hint."""
    assert len(set(MODELS)) == len(MODELS)
    assert set(MODELS) == set(inside(Manifest))


def test_a_sound_one_passes_and_may_leave_out_what_has_a_default() -> None:
    assert judged(written()) == manifest()
    shorter = {
        name: value for name, value in json_value(written()).items() if name not in ("quorum", "lease_s", "gpus")
    }
    assert judged(json.dumps(shorter).encode()) == manifest()


def refusal(text: bytes) -> ManifestRefused:
    with pytest.raises(ManifestRefused) as refused:
        judged(text)
    return refused.value


def test_of_many_faults_the_first_are_named_and_the_others_counted() -> None:
    """Nobody reads eight thousand, and each costs whoever else waits for this process."""
    said = refusal(written(roster=[0] * 8000))
    assert [entry["field"] for entry in said.errors or []] == [f"roster.{number}" for number in range(MAX_FIELDS)]
    assert "(and 7999 more)" in said.detail


def test_only_what_is_named_is_compared_with_the_known_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    close = difflib.get_close_matches

    def counted(name: str, *rest: Any) -> list[str]:
        compared.append(name)
        return close(name, *rest)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    unknown = {"r" * (MAX_PART + 1): 0} | {f"rounds{number}": 0 for number in range(4000)}
    said = refusal(json.dumps(manifest().model_dump(mode="json") | unknown).encode())
    assert len(compared) < len(said.errors or []) == MAX_FIELDS
    assert max(map(len, compared)) <= MAX_PART
    assert "(and 4000 more)" in said.detail


def test_more_faults_than_are_described_are_only_counted() -> None:
    said = refusal(written(training=dict.fromkeys(map(str, range(MOST_FAULTS + 1)), 0)))
    assert [entry["field"] for entry in said.errors or []] == ["manifest"]
    assert f"has {MOST_FAULTS + 1} faults" in said.detail


@pytest.mark.parametrize("roster", [[0] * MOST_VALUES, [[[0] * 200] * 600], [{"x": [{}] * MOST_VALUES}]])
def test_values_without_end_are_refused_before_they_are_looked_at(roster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at(*_args: object) -> None:
        raise AssertionError("it was looked at")

    monkeypatch.setattr(Manifest, "model_validate", looked_at)
    said = refusal(written(roster=roster))
    assert (said.code, said.detail) == ("invalid-manifest", f"document: holds more than {MOST_VALUES} values")


@pytest.mark.parametrize(
    "given", ["SECRET" * 100_000, "SECRET" * MAX_SHOWN, "SECRET\n", {"a": "SECRET"}, [["SECRET"] * 20], "SECRET\u202e"]
)
def test_only_a_short_name_of_a_kind_is_repeated(given: object) -> None:
    """The answer, and every log and page that shows it, would carry what its sender likes."""
    for change in ({"travel_mode": given}, {"training": {"optimizer": {"kind": given}}}):
        said = refusal(written(**change))
        assert "SECRET" not in said.detail + json.dumps(said.errors)
        assert "not supported" in said.detail


def test_a_fields_name_is_shown_as_far_as_one_has_letters() -> None:
    said = refusal(written(**{"n" * 100_000: 1}))
    assert said.detail.startswith("n" * MAX_PART + "…: no such field")
    assert refusal(written(**{"n\n\x1b[2J": 1})).detail.startswith("…: no such field")
