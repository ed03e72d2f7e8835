"""Makes the reference of the command line from the commands themselves: words, examples, options, what each option listens to."""

from __future__ import annotations

import importlib
import inspect
from enum import Enum
from typing import Any

from typer.main import get_command

from gput.__main__ import COMMANDS
from gput.commands.manners import split_help
from gput.config import SETTINGS


def client_settings() -> str:
    """A table of the client's own settings."""
    rows = "".join(f"| `{name}` | `{one.variable}` | {one.meaning} |\n" for name, one in SETTINGS.items())
    return f"| in the file | in the environment | |\n|---|---|---|\n{rows}"


def reference() -> str:
    """Every command that people see, noun by noun."""
    parts = []
    for noun, (module, summary) in COMMANDS.items():
        command = get_command(importlib.import_module(module).app)
        verbs = getattr(command, "commands", None)
        parts.append(f"### gput {noun}\n\n{summary}.\n\n")
        for verb, found in ({"": command} if verbs is None else verbs).items():
            if not found.hidden:
                parts.append(_one(f"gput {noun} {verb}".strip(), found, alone=verbs is None))
    return "".join(parts)


def _one(path: str, command: Any, *, alone: bool) -> str:
    examples, text = split_help(command.help)
    shown = "\n".join(line for example in examples for line in _lines(example))
    head = "" if alone else f"#### {path}\n\n"
    words = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n") if part)
    rows = "".join(_row(option) for option in command.params if not getattr(option, "hidden", False))
    table = f"| | | default |\n|---|---|---|\n{rows}\n" if rows else ""
    return f"{head}{words}\n\n{shown}\n\n{table}"


def _lines(example: str) -> list[str]:
    """An example's lines as a block of code."""
    first, *rest = example.split("\n")
    lines = [first.partition(":")[2].strip(), *(line.strip() for line in rest)]
    return [f"    {line}" for line in lines if line]


def _row(option: Any) -> str:
    names = [name for name in (*option.opts, *option.secondary_opts) if name.startswith("-")]
    name = ", ".join(f"`{flag}`" for flag in names) or f"`{option.name.upper()}`"
    listens = f" (`{option.envvar}`)" if option.envvar else ""
    return f"| {name}{listens} | {_cell(option.help or '')} | {_default(option)} |\n"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if value is None or value is False or callable(value):
        return ""
    return f"`{_cell(str(value.value if isinstance(value, Enum) else value))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
