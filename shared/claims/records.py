"""The record schema: names, dtypes, shapes, valid ranges of one training record. Knows no tensor library and no files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.claims import Claim

DType = Literal["uint8", "uint16", "int32", "int64", "float32", "float64", "bool"]
RecordDType = Literal["uint8", "uint16", "int32", "int64", "float32"]
ITEM_BYTES: dict[str, int] = {
    "uint8": 1, "bool": 1, "uint16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
SAFETENSORS: dict[str, str] = {
    "float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "bool": "BOOL",
}  # fmt: skip
"""What a safetensors file calls them."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,127}$")]
TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.]{0,127}$")]
"""As `Name`, but PyTorch also names tensors by position ("0.weight")."""
Dim = Annotated[int, Field(ge=1, le=1 << 24)]


class RecordField(Claim):
    """One field of a record: `shape` is per record (no batch dimension); values are little-endian and lie in [min, max].

    Floats must be finite whether or not a range is given.
    """

    name: Name
    dtype: RecordDType
    shape: tuple[Dim, ...] = Field(default=(), max_length=4)
    min: float | None = None
    max: float | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of this field in one record."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def require_names_once(names: Iterable[str]) -> None:
    """Raises: ValueError: two fields have one name."""
    found = list(names)
    if len(set(found)) != len(found):
        raise ValueError("field names repeat")


class RecordSchema(Claim):
    """A record is its fields' bytes one after another, little-endian, without padding; a buffer is records end to end."""

    fields: tuple[RecordField, ...] = Field(min_length=1, max_length=16)

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        require_names_once(field.name for field in self.fields)
        return self

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return sum(field.size_bytes for field in self.fields)
