"""Wire model <-> deterministic CBOR. Knows no meaning."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from shared.canonical import cbor_bytes
from shared.claims.exact import claim_of, claims_of
from shared.claims.shape import first_fault
from shared.errors import BadRequest

M = TypeVar("M", bound=BaseModel)


def encode(model: BaseModel) -> bytes:
    """One model as deterministic CBOR."""
    return cbor_bytes(model.model_dump(by_alias=True, mode="python"))


def encode_all(models: list[Any]) -> bytes:
    """A batch as a deterministic CBOR array."""
    return cbor_bytes([model.model_dump(by_alias=True, mode="python") for model in models])


def decode(kind: type[M], data: bytes) -> M:
    """Strict model from CBOR. Raises: BadRequest."""
    try:
        return claim_of(kind, data)
    except ValidationError as error:
        raise BadRequest(_first(kind.__name__, error)) from None


def decode_all(adapter: TypeAdapter[list[Any]], data: bytes) -> list[Any]:
    """Strict batch from CBOR. Raises: BadRequest."""
    try:
        return claims_of(adapter, data)
    except ValidationError as error:
        raise BadRequest(_first("batch", error)) from None


def _first(what: str, error: ValidationError) -> str:
    # The input value stays out of the message: it may be somebody's record.
    return f"{what}: {first_fault(error)}"
