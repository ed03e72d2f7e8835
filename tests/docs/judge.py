"""Judges a command without running it: the CLI's own parser, the Makefile's targets, the modules there are, compose's services.

Each judge answers what is wrong with the command, or `None`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache

import pytest
import typer
import yaml

from gput.__main__ import COMMANDS
from shared.errors import BadRequest
from tests.docs.extract import ROOT, Command

PLACES = {
    "GPUT_URL": "http://127.0.0.1:9", "GPUT_KEY": "k.pem", "GPUT_HOLDER_URL": "http://127.0.0.1:9", "GPUT_HOLDER_TOKEN": "t",
}  # fmt: skip
"""What the commands may take from the environment, so that a page need not repeat it."""
SERVICES = {"orchestrator", "data_holder", "gpu_agent", "gpu_agent.platform"}
SERVICE_OPTIONS = {"--config", "--schema", "--rotate-identity", "--recover", "--backup"}
PLAIN = {
    "awk", "bash",
    "cat", "cd", "cp", "curl", "echo", "exit", "export", "git", "grep", "head", "jq", "kill", "ls", "mkdir", "mktemp", "mv", "pwd",
    "rm", "sed", "sleep", "source", "test", "trap", "unset", "wait", ".venv/bin/python", "sort", "tail", "tee", "[",
}  # fmt: skip
"""Tools of the shell, which are nobody's to document here."""


def fault(command: Command, *, whole: bool = True) -> str | None:
    """What is wrong. `whole`: a complete command; else part of one, as running text names it, which may lack what it needs."""
    first, rest = command.words[0], list(command.words[1:])
    if first == "gput":
        return _gput(rest, whole)
    if first in ("python", "python3", ".venv/bin/python"):
        return _python(rest)
    if first == "make":
        return _make(rest)
    if first == "docker":
        return _docker(rest)
    return None if first in PLAIN else f"{first!r} is no program that the tests know: tests/docs/judge.py"


@cache
def _app(noun: str) -> typer._click.Command:
    return typer.main.get_command(importlib.import_module(COMMANDS[noun][0]).app)


def path(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that name the command: `gput session submit`, `make demo`, `docker compose up`, `python -m docs.generate`."""
    if words[0] != "gput":
        return words[: {"docker": 3, "python": 3, "python3": 3, "make": 2}.get(words[0], 1)]
    named = list(words[:2])
    command = _app(words[1]) if len(words) > 1 and words[1] in COMMANDS else None
    for word in words[2:]:
        if not isinstance(command, typer.core.TyperGroup) or word not in command.commands:
            break
        command = command.commands[word]
        named.append(word)
    return tuple(named)


def _gput(words: list[str], whole: bool) -> str | None:
    if not words or words[0].startswith("-"):
        return None if words[:1] in ([], ["--help"], ["--version"]) else f"no such option: {words[0]}"
    if words[0] not in COMMANDS:
        return f"no such command: gput {words[0]}"
    command, rest = _app(words[0]), words[1:]
    while isinstance(command, typer.core.TyperGroup):
        if not rest or rest == ["--help"]:
            return None if rest or not whole else "it names a group and no command"
        if rest[0] not in command.commands:
            return f"no such command: {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    return _parsed(command, rest) if whole else _options(command, rest)


def _parsed(command: typer._click.Command, words: list[str]) -> str | None:
    """By the command's own parser, types included; nothing is called."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLACES.items():
            patch.setenv(name, value)
        try:
            command.make_context(command.name or "gput", list(words))
        except BadRequest as error:
            return error.detail
        except typer.Exit:
            pass  # --help
    return None


def _options(command: typer._click.Command, words: list[str]) -> str | None:
    known = {"--help"} | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0] not in known]
    return f"no such option: {unknown[0]}" if unknown else None


def _python(words: list[str]) -> str | None:
    if words[:1] != ["-m"]:
        return None  # a program of the page's own, or one line of Python
    if len(words) < 2 or importlib.util.find_spec(words[1]) is None:
        return "no such module"
    if words[1] in SERVICES and words[2:3] != ["manufacture"]:
        unknown = [word for word in words[2:] if word.startswith("-") and word not in SERVICE_OPTIONS]
        return f"no such option: {unknown[0]}" if unknown else None
    return None


def _make(words: list[str]) -> str | None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    absent = [word for word in words if "=" not in word and word not in targets]
    return f"no such target: {absent[0]}" if absent else None


def _docker(words: list[str]) -> str | None:
    if words[:1] != ["compose"]:
        return None
    files = [words[place + 1] for place, word in enumerate(words) if word == "-f"] or ["docker-compose.yml"]
    services: dict[str, object] = {}
    for name in files:
        if not (ROOT / name).exists():
            return f"no such file: {name}"
        services |= yaml.safe_load((ROOT / name).read_text())["services"]
    return next((f"no such service: {name}" for name in _services(words[1:]) if name not in services), None)


def _services(words: list[str]) -> Iterator[str]:
    """The services that `docker compose …` names: what follows the verb, up to the command that runs in one."""
    verbs = [
        place
        for place, word in enumerate(words)
        if word in ("run", "exec", "stop", "start", "kill", "restart", "logs", "up")
    ]
    if verbs:
        named = [word for word in words[verbs[0] + 1 :] if not word.startswith("-")]
        yield from named[:1] if words[verbs[0]] in ("run", "exec") else named
