"""JSON that lies in a row, read by who shows or adds to it: of another form it is nothing, and takes no other row away. Knows no table."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def legible(form: TypeAdapter[T], text: str) -> T | None:
    """What was written, or None: the disk or somebody else made something else of it. It is not verified by being legible."""
    try:
        return form.validate_json(text, strict=True)
    except (ValueError, TypeError):  # the second where the column holds no text at all
        return None
