"""Records that nobody owns, for benches, rehearsals and mock data: drawn from a seed within the ranges that a program declares.

Knows no dataset and no service.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from shared.claims.records import RecordField, RecordSchema

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray[Any, Any]]

UNBOUNDED = 1.0
"""How far from 0 a field goes that declares no range."""


def arrays(schema: RecordSchema, count: int, seed: int) -> Arrays:
    """`count` records, field by field: arrays (count, *field.shape) of the field's dtype."""
    import numpy as np  # here: every command would pay for it

    draws = np.random.default_rng(seed)

    def values(field: RecordField) -> np.ndarray[Any, Any]:
        low, high = edges(field)
        kind = np.dtype(field.dtype)
        shape = (count, *field.shape)
        if kind.kind == "f":
            return draws.uniform(low, high, shape).astype(kind)
        return draws.integers(int(low), int(high), shape, dtype=kind, endpoint=True)

    return {field.name: values(field) for field in schema.fields}


def with_edges(schema: RecordSchema, count: int, seed: int) -> Arrays:
    """As `arrays`, but the first record has the least value everywhere and the second the greatest: a declared range says that both may
    come, so a program must bear them."""
    found = arrays(schema, count, seed)
    for field in schema.fields:
        for row, edge in enumerate(edges(field)[:count]):
            found[field.name][row] = edge
    return found


def edges(field: RecordField) -> tuple[float, float]:
    """The least and the greatest value that is made up for a field: its declared range as far as there is one, and as its dtype can hold
    it; whole numbers where it holds such."""
    import numpy as np

    low = field.min if field.min is not None else min(0.0, field.max if field.max is not None else 0.0)
    high = field.max if field.max is not None else max(low, UNBOUNDED)
    kind = np.dtype(field.dtype)
    if kind.kind == "f":
        most = float(np.finfo(kind).max)
        return max(low, -most), min(high, most)
    limits = np.iinfo(kind)
    return max(math.ceil(low), int(limits.min)), min(math.floor(high), int(limits.max))
