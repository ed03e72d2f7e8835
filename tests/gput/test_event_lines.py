"""What an event looks like in the terminal, whatever its service says."""

from __future__ import annotations

from typing import Any

import pytest

from gput.event_lines import WIDTH, lines


def test_a_moment_and_none_take_the_same_room() -> None:
    event = {"kind": "visit", "fact": "trained", "durations": {"train": 0.0123}}
    assert list(lines({"at": 1.5, **event})) == [
        "1970-01-01 00:00:01.500  visit trained",
        " " * (WIDTH + 4) + "train 12.3 ms",
    ]
    assert next(lines(event)) == " " * WIDTH + "  visit trained"


@pytest.mark.parametrize("at", [1e300, -1e300, float("nan"), float("inf"), "yesterday", [1]])
def test_what_no_calendar_has_is_shown_as_it_came(at: Any) -> None:
    """One service with a broken clock must not end the reading of a whole session."""
    [line] = lines({"at": at, "kind": "visit"})
    assert line.endswith("  visit")
    assert line.split()[0] == (f"{at:.4g}" if isinstance(at, float) else str(at))
