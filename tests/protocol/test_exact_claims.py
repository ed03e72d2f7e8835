"""Claims read from CBOR: what is written as another type is refused, wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.canonical import cbor_bytes
from shared.claims import Claim, Grown
from shared.claims.exact import claim_of, claims_of
from shared.errors import BadRequest
from tests.protocol.signed_samples import SIGNED


class Colour(StrEnum):
    RED = "red"


class Inner(Claim):
    size: int = 0
    loss: float | None = None


class Outer(Grown):
    later = ("note",)
    number: int
    data: bytes
    text: str = ""
    sure: bool = False
    colour: Colour = Colour.RED
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    note: str | None = None


LEAST: dict[str, Any] = {"number": 1, "data": b"\xff\x00"}


@pytest.mark.parametrize(
    "more",
    [
        {}, {"text": "é", "sure": True, "colour": "red"}, {"inner": {"size": 2, "loss": 1.0}}, {"inner": {"loss": None}},
        {"many": [{"size": 1}, {}], "note": "new"}, {"note": None}, {"inner": None, "many": []},
    ],
)  # fmt: skip
def test_what_is_written_as_the_format_says_is_read(more: dict[str, Any]) -> None:
    assert claim_of(Outer, cbor_bytes({**LEAST, **more})) == Outer(**LEAST, **more)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"number": "1"}, ("number",)), ({"number": 1.0}, ("number",)), ({"number": True}, ("number",)), ({"data": "text"}, ("data",)),
        ({"text": b"text"}, ("text",)), ({"sure": 1}, ("sure",)), ({"sure": "yes"}, ("sure",)), ({"colour": b"red"}, ("colour",)),
        ({"inner": {"size": "7"}}, ("inner", "size")), ({"inner": {"loss": 1}}, ("inner", "loss")),
        ({"many": [{}, {"size": 2.0}]}, ("many", 1, "size")), ({"note": b"new"}, ("note",)),
    ],
)  # fmt: skip
def test_nothing_is_converted(more: dict[str, Any], place: tuple[int | str, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        claim_of(Outer, cbor_bytes({**LEAST, **more}))
    assert refused.value.errors()[0]["loc"] == place


def test_of_a_batch_every_one_is_read_at_its_word() -> None:
    many = TypeAdapter(list[Inner])
    assert claims_of(many, cbor_bytes([{"size": 1}, {}])) == [Inner(size=1), Inner()]
    with pytest.raises(ValidationError) as refused:
        claims_of(many, cbor_bytes([{"size": 1}, {"size": "2"}]))
    assert refused.value.errors()[0]["loc"] == (1, "size")


@pytest.mark.parametrize("data", [b"", b"\xff", cbor_bytes(LEAST) + b"\x00"])
def test_other_bytes_are_not_read_at_all(data: bytes) -> None:
    with pytest.raises(BadRequest):
        claim_of(Outer, data)


def test_an_array_is_no_model() -> None:
    with pytest.raises(ValidationError):
        claim_of(Outer, cbor_bytes([1, b""]))


SAMPLES = pytest.mark.parametrize(("kind", "whole"), SIGNED.items(), ids=lambda one: getattr(one, "__name__", ""))


def _without(said: Mapping[str, Any], *place: str) -> dict[str, Any]:
    name, *within = place
    if within:
        return {**said, name: _without(said[name], *within)}
    return {key: value for key, value in said.items() if key != name}


@SAMPLES
def test_a_signed_document_says_all_of_its_fields(kind: type[Claim], whole: dict[str, Any]) -> None:
    """Its profile above all: a browser has no default to read in its place."""
    later: Sequence[str] = getattr(kind, "later", ())
    assert claim_of(kind, cbor_bytes(whole)) == kind.model_validate(whole)
    assert {name for name in kind.model_fields if name not in whole} == set()
    places = [(name,) for name in whole if name not in later]
    places += [(name, within) for name in whole if isinstance(whole[name], dict) for within in whole[name]]
    for place in places:
        with pytest.raises(ValidationError) as refused:
            claim_of(kind, cbor_bytes(_without(whole, *place)))
        assert refused.value.errors()[0]["loc"] == place
    for name in later:
        assert claim_of(kind, cbor_bytes(_without(whole, name))) == kind.model_validate(whole | {name: None})
