"""HOSTILE CODE's report (attack tour): one attack on one screen, at most 24 lines of 80 columns. Knows values only."""

from __future__ import annotations

import textwrap

from gput.local.attacks.attack import Attack
from gput.local.attacks.result import Result
from gput.local.attacks.table import ATTACKS
from shared.names import TravelMode

LINES, COLUMNS, LABEL = 24, 80, 10


def screen(attack: Attack, mode: TravelMode, result: Result, seconds: float) -> str:
    """The page."""
    rows = ", ".join(attack.rows)
    lines = [f"Attack {attack.name} · rows {rows} · mode {mode.value} · EMULATED"]
    lines += _entry("by", attack.who, 1) + _entry("tried", result.attempt, 4)
    for said in result.said[:2]:
        lines += _entry("check", f"{said.component}: {said.code}", 1) + _entry("", f"“{said.message}”", 2)
    for number, fact in enumerate(result.after):
        lines += _entry("after" if number == 0 else "", f"{'✓' if fact.holds else '✗'} {fact.says}", 2)
    lines += _entry("table", attack.defence, 2) + _entry("hardware", result.note, 3)
    ending = f"{result.verdict}, as expected" if result.as_expected else f"NOT AS EXPECTED ({result.verdict})"
    lines += _entry("verdict", f"{ending} · {seconds:.0f} s", 1)
    return "\n".join(lines[: LINES - 1] + lines[-1:] if len(lines) > LINES else lines)


def listing() -> str:
    """The table of names."""
    head = f"{'name':<18}{'rows':<14}{'modes':<22}what"
    rows = (f"{a.name:<18}{','.join(a.rows):<14}{','.join(m.value for m in a.modes):<22}" for a in ATTACKS.values())
    lines = [head]
    for row, attack in zip(rows, ATTACKS.values(), strict=True):
        lines += [
            row.rstrip(),
            *textwrap.wrap(attack.what, COLUMNS - 4, initial_indent="    ", subsequent_indent="    "),
        ]
    return "\n".join(lines)


def _entry(label: str, text: str, most: int) -> list[str]:
    found = textwrap.wrap(text, COLUMNS - LABEL, max_lines=most, placeholder=" …") or [""]
    return [f"{label if n == 0 else '':<{LABEL}}{line}" for n, line in enumerate(found)]
