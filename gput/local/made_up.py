"""Records that nobody owns, for benches: drawn from a seed within the ranges that a program declares. Knows no dataset and no service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.claims.records import RecordField, RecordSchema

if TYPE_CHECKING:
    import numpy as np

UNBOUNDED = 1.0
"""How far from 0 a field goes that declares no range."""


def arrays(schema: RecordSchema, count: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """`count` records, field by field: arrays (count, *field.shape) of the field's dtype."""
    import numpy as np  # here: every command would pay for it

    draws = np.random.default_rng(seed)

    def values(field: RecordField) -> np.ndarray[Any, Any]:
        low = field.min if field.min is not None else min(0.0, field.max if field.max is not None else 0.0)
        high = field.max if field.max is not None else max(low, UNBOUNDED)
        kind = np.dtype(field.dtype)
        shape = (count, *field.shape)
        if kind.kind == "f":
            return draws.uniform(low, high, shape).astype(kind)
        return draws.integers(int(np.ceil(low)), int(np.floor(high)), shape, dtype=kind, endpoint=True)

    return {field.name: values(field) for field in schema.fields}
