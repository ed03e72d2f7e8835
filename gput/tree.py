"""The commands of one noun, made of its module once in a process. Knows no noun.

To make them costs as much as many a command itself, and the configuration file, the shell's completion and the run each want them.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


@cache
def command_of(module: str) -> Any:
    """What runs a noun whose module has its Typer application as `app`: a click command, a group where the noun has verbs."""
    from typer.main import get_command

    return get_command(importlib.import_module(module).app)
