"""Claims read from CBOR at their word: no text is taken for a number, no byte string for a text. Knows no message and no key.

JSON has one kind of number and no byte strings, so there pydantic converts. CBOR has all of them, and a reader that converts would take
for the same document what another implementation of the formats refuses (docs/formats.md): verifiers must not differ.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, LiteralString, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from shared.canonical import cbor_bytes, cbor_in_any_form, cbor_value
from shared.claims import Grown

M = TypeVar("M", bound=BaseModel)
Path = tuple[int | str, ...]


def claim_of(kind: type[M], data: bytes) -> M:
    """`data`, deterministic CBOR of one map, as a model. One that names its profile is signed, and kept: all of its fields are written.

    Raises: BadRequest, not such CBOR; ValidationError, not such a model.
    """
    found = kind.model_validate(cbor_in_any_form(data), by_alias=True)
    _refuse_another_form(kind.__name__, found.model_dump(by_alias=True, exclude_unset=True), data)
    if "profile" in kind.model_fields and (place := _first_left_out(found, ())) is not None:
        raise _fault(kind.__name__, "left_out", "is not written, though every document of this profile has it", place)
    return found


def claims_of(adapter: TypeAdapter[list[Any]], data: bytes) -> list[Any]:
    """`data`, deterministic CBOR of one array, as models. Raises: as `claim_of`."""
    found = adapter.validate_python(cbor_in_any_form(data), by_alias=True)
    _refuse_another_form("batch", adapter.dump_python(found, by_alias=True, exclude_unset=True), data)
    return found


def _refuse_another_form(what: str, read: Any, data: bytes) -> None:
    """One comparison for what is nearly always so: what was read is written by the same bytes. Else it is found out what differs."""
    if cbor_bytes(read) != data:
        _refuse_other_types(what, read, cbor_value(data))


def _refuse_other_types(what: str, read: Any, sent: Any) -> None:
    place = _first_other(read, sent, ())
    if place is not None:
        raise _fault(what, "other_type", "is written as a value of another type than the format's", place)


def _fault(what: str, code: LiteralString, why: LiteralString, place: Path) -> ValidationError:
    fault = PydanticCustomError(code, why)
    return ValidationError.from_exception_data(what, [{"type": fault, "loc": place, "input": None}])


def _first_left_out(read: BaseModel, place: Path) -> Path | None:
    """Where a field is not written, in this claim or in one within it, that is none of those that came later; None where all are.

    A default read in its place is nobody's word: an unnamed profile, or travel mode.
    """
    later = read.later if isinstance(read, Grown) else ()
    for name in type(read).model_fields:
        value = getattr(read, name)
        if name not in read.model_fields_set:
            if name not in later:
                return (*place, name)
        elif isinstance(value, BaseModel) and (within := _first_left_out(value, (*place, name))) is not None:
            return within
    return None


def _first_other(read: Any, sent: Any, place: Path) -> Path | None:
    """Where what was read is not what was sent, type for type; None where it is the same."""
    if isinstance(sent, dict):
        if not isinstance(read, dict):
            return place
        # A claim that grew leaves out what is empty of its later fields, and reads it if another writes it.
        inside = ((name, read.get(name, value and _NOTHING), value) for name, value in sent.items())
    elif isinstance(sent, list):
        if not isinstance(read, list | tuple) or len(read) != len(sent):
            return place
        inside = ((index, one, value) for index, (one, value) in enumerate(zip(read, sent, strict=True)))
    else:
        plain = read.value if isinstance(read, Enum) else read
        return None if type(plain) is type(sent) and plain == sent else place
    return next(
        (found for name, one, value in inside if (found := _first_other(one, value, (*place, name))) is not None), None
    )


_NOTHING = object()
