"""What every JSON body is asked before its model looks at it. Knows no route and no model.

A model names each thing that is wrong with a body, and whoever sends 4 MiB of unknown fields would have it name half a million, while
nothing else of the service runs.
"""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from shared.claims.shape import holds_more

MOST_VALUES = 1_000
"""Of a body; the largest (an attested channel's proof) holds some twenty. Documents within one are texts, with bounds of their own."""


def few(value: Any) -> Any:
    """The value of a body, as it is. Raises: PydanticCustomError: it holds more values than any model has room for."""
    if holds_more(value, MOST_VALUES):
        raise PydanticCustomError("too_many_values", "holds more than {most} values", {"most": MOST_VALUES})
    return value


Few = BeforeValidator(few)
"""Stands in the annotation of a route's body."""
