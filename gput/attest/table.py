"""The table of checks, for people: one line per check, whole lines in a pipe, folded to the screen's width on a terminal.

Long hexadecimal values are shown by their two ends; json carries them whole. Knows the checks' records, no verifier.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.service.printable import printable

_LONG_HEX = re.compile(r"[0-9a-f]{40,}")
NAME, STATUS = 22, 12
MARKS = {"pass": "ok", "fail": "FAIL", "expired": "EXPIRED", "not-checked": "not checked"}


def print_checks(title: str, checks: Sequence[Mapping[str, Any]], verdict: str) -> None:
    """Title, a line per check, and what follows from them."""
    width = shutil.get_terminal_size().columns if _terminal() else None
    # What evidence says may hold anything, in a verdict as well as in a row; a table shows text only.
    for line in (title, *_rows(checks, width), *_folded(verdict, width, ""), ""):
        print(printable(line))


def _terminal() -> bool:
    return sys.stdout.isatty()


def _rows(checks: Iterable[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    for check in checks:
        head = f"  {check['name']:<{NAME}} {MARKS.get(check['status'], check['status']):<{STATUS}}"
        first, *more = _folded(words(check), width, " " * len(head)) or [""]
        yield (head + first.lstrip()).rstrip()
        yield from more


def words(check: Mapping[str, Any]) -> str:
    """What is to be said of one check: why, expected and got, what to do."""
    parts = [str(check["reason"])] if check["reason"] else []
    blocks = check.get("indices")
    parts += [f"blocks {', '.join(map(str, blocks))}"] if blocks else []
    for name in ("expected", "got"):
        parts += [f"{name} {check[name]}"] if check[name] else []
    if check["status"] != "pass" and check["remedy"]:
        parts.append(f"to do: {check['remedy']}")
    return _LONG_HEX.sub(lambda found: f"{found[0][:12]}…{found[0][-8:]}", "; ".join(parts))


def _folded(text: str, width: int | None, indent: str) -> list[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(text, max(width, len(indent) + 20), initial_indent=indent, subsequent_indent=indent)
