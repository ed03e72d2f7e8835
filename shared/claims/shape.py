"""How much of a value of another shape is looked at, and what is said of it. Knows no model and no HTTP.

Whoever sends a value chooses how much is wrong with it, and each fault costs some microseconds during which nothing else of the process
runs: so values without end are refused by their number, and of more faults than anybody reads only the number is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

MAX_FIELDS = 50
"""Faults that one answer names."""
MOST_FAULTS = 10_000
"""Above which none is named: pydantic describes all of them or none."""
MAX_PART = 64
"""Letters of a field's name that are shown: an unknown field is called as its sender likes."""


def faults_of(error: ValidationError, *, whole: bool = False) -> list[dict[str, Any]]:
    """What is wrong, fault by fault, as pydantic says it; empty if it is more than `MOST_FAULTS`.

    Args:
        whole: with what was sent (`input`, `ctx`), which may be somebody's data.
    """
    if error.error_count() > MOST_FAULTS:
        return []
    found = error.errors(include_url=False, include_context=whole, include_input=whole)
    return [{**one, "msg": words_of(one)} for one in found]


def words_of(fault: Mapping[str, Any]) -> str:
    """What pydantic says of a fault, without its name for an error that is ours."""
    return str(fault["msg"]).removeprefix("Value error, ")


def too_many(count: int) -> str:
    """What is said of a value whose faults are not named."""
    return f"has {count} faults, too many to name"


def first_fault(error: ValidationError, top: str = "the whole") -> str:
    """The first fault in one line, with nothing of what was sent but its fields' names; `top` stands for what has none."""
    faults = faults_of(error)
    if not faults:
        return f"{top}: {too_many(error.error_count())}"
    return f"{path_of(faults[0]['loc']) or top}: {faults[0]['msg']}"


def path_of(loc: tuple[int | str, ...]) -> str:
    """Where a fault is."""
    return ".".join(_part(str(one)) for one in loc)


def _part(name: str) -> str:
    if not name.isprintable():
        return "…"
    return name if len(name) <= MAX_PART else f"{name[:MAX_PART]}…"


def holds_more(value: Any, most: int) -> bool:
    """Whether a JSON value holds more than so many others, at any depth."""
    held, waiting = 0, [value]
    while waiting and held <= most:
        one = waiting.pop()
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        held += len(inside)
        waiting += [inner for inner in inside if isinstance(inner, dict | list)]
    return held > most
