"""What a service says in its log can be read: no line names a field that is blanked for its name. Looks at source text only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import shared
from shared.service.logging import REDACTED, redact

ROOT = Path(shared.__file__).parents[1]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def logged() -> Iterator[tuple[str, str]]:
    """(file and line, field's name) of each field of each line."""
    for room in ("shared", "orchestrator", "data_holder", "gpu_agent", "gput"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            for call in ast.walk(ast.parse(text)) if "_log." in text else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _levelled(call.func):
                    for field in call.keywords:
                        yield f"{path.relative_to(ROOT)}:{call.lineno}", field.arg or ""


def _levelled(function: ast.Attribute) -> bool:
    return isinstance(function.value, ast.Name) and function.value.id == "_log" and function.attr in LEVELS


def test_no_line_names_a_field_that_is_blanked() -> None:
    """Such a line says `[redacted]` where its reader was promised, say, a key's id. What is secret is not logged at all."""
    names = list(logged())
    assert len(names) > 100  # the lines are found
    assert not [(place, name) for place, name in names if REDACTED in redact(None, "", {name: "text"}).values()]
