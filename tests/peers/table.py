"""What was measured, as people read it: one row per contestant, and what the kill came to in words. Sums and words only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("who", "wall_s", "loss", "worst_loss", "moved_mb", "loopback_mb", "memory_mb", "largest_mb", "after_kill")
LOWER = ("wall_s", "loss", "worst_loss", "moved_mb", "loopback_mb", "memory_mb", "largest_mb")


def rows(names: Sequence[str], found: Mapping[str, float], words: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each name. `found`: figures as NAME.FIGURE; `words`: how a name's own tool showed its killed job in the end."""
    return [
        {
            "who": name,
            **{column: found.get(f"{name}.{column}") for column in LOWER},
            "after_kill": after(name, found, words),
        }
        for name in names
    ]


def after(name: str, found: Mapping[str, float], words: Mapping[str, str]) -> str:
    """What became of its job after its server was killed and started again."""
    finished = found.get(f"{name}.kill_finished")
    if finished is None:
        return "not tried"
    if not finished:
        return f"not finished: {words.get(name, 'unknown')}"
    again, loss = found[f"{name}.kill_again"], found[f"{name}.kill_loss"]
    same = "the same loss" if loss == found.get(f"{name}.loss") else f"loss {loss}"
    return f"finished in {found[f'{name}.kill_s']:.0f} s, {again:.0f} visits again, {same}"


def standing(ours: str, others: Sequence[str], found: Mapping[str, float]) -> list[str]:
    """A line per column: whose figure is the lowest, and ours ÷ the best of the others. Columns that somebody lacks are left out."""
    lines = []
    for column in LOWER:
        values = {name: found.get(f"{name}.{column}") for name in (ours, *others)}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) < len(values) or not others:
            continue
        best = min(others, key=lambda name: known[name])
        ratio = known[ours] / known[best] if known[best] else float("inf")
        ahead = "ahead" if known[ours] < known[best] else "behind" if known[ours] > known[best] else "equal"
        lines.append(f"{column}: {ours} is {ahead}, {ratio:.2f} times the best of the others ({best})")
    return lines
