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
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and ast.unparse(call.func).startswith(
                    tuple(f"_log.{each}" for each in LEVELS)
                ):
                    for field in call.keywords:
                        yield f"{path.relative_to(ROOT)}:{call.lineno}", field.arg or ""


def test_no_line_names_a_field_that_is_blanked() -> None:
    """Such a line says `[redacted]` where its reader was promised, say, a key's id. What is secret is not logged at all."""
    names = list(logged())
    assert len(names) > 100  # the lines are found
    assert not [(place, name) for place, name in names if REDACTED in redact(None, "", {name: "text"}).values()]
