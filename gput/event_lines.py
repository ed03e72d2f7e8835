"""A session's events as lines for people: when, whose visit, what, and how long its steps took. Knows no service and no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from shared.service.printable import printable

SHOWN = (
    "reason",
    "code",
    "detail",
    "records",
    "step",
    "loss",
    "validation_loss",
    "gpu",
    "backend",
    "sha256",
    "party",
    "seconds",
)

WIDTH = 23
"""Of a moment."""


def lines(event: Mapping[str, Any]) -> Iterator[str]:
    """One line, and one for each timed step where the event brings them."""
    at = event.get("at")
    when = f"{_when(at):{WIDTH}}"
    what = f"{event.get('kind', '')} {event.get('fact') or ''}".strip()
    where = " ".join(str(event[name]) for name in ("holder", "visit") if event.get(name))
    rest = " ".join(f"{name}={_value(event[name])}" for name in SHOWN if event.get(name) is not None)
    # What a holder or a peer says must not steer the terminal.
    yield printable("  ".join(part for part in (when, what, where, rest) if part))
    for step, seconds in {**(event.get("durations") or {}), **(event.get("tour_durations") or {})}.items():
        yield printable(f"{' ' * WIDTH}    {step} {seconds * 1000:.1f} ms")


def _when(at: Any) -> str:
    if at is None:
        return ""
    with suppress(ValueError, OverflowError, OSError, TypeError):  # what no calendar has is shown as it came
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return _value(at)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return f'"{text}"' if " " in text else text
