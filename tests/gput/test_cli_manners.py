"""What holds of every command: examples first, a schema where there is JSON, completion in a real shell, and little to load."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gput.__main__ import COMMANDS, main
from gput.commands.manners import split_help
from gput.completion import SCRIPTS, candidates
from gput.schemas import OUTPUTS
from tests.gput.test_gput_commands import NOBODY, run

HEAVY = (
    "torch",
    "numpy",
    "fastapi",
    "starlette",
    "sqlalchemy",
    "alembic",
    "lxml",
    "uvicorn",
    "safetensors",
    "prometheus_client",
)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that people see, by its words."""
    for noun, (module, _) in COMMANDS.items():
        command = get_command(importlib.import_module(module).app)
        for verb, found in getattr(command, "commands", {"": command}).items():
            yield f"{noun} {verb}".strip(), found


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL)
def test_help_leads_with_an_example_of_the_very_command(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *path.split(), "--help")
    assert (code, err) == (0, "")
    usage, rest = out.split("\n\n", 1)
    assert usage.startswith(f"Usage: gput {path}")
    assert rest.startswith("Example")
    assert f"gput {path}" in rest.partition("\n\n")[0]
    assert ("--schema" in out) == ("--format" in out)


@pytest.mark.parametrize("noun", [noun for noun in COMMANDS if any(path.startswith(f"{noun} ") for path in ALL)])
def test_help_of_a_noun_leads_with_an_example(noun: str) -> None:
    examples, rest = split_help(get_command(importlib.import_module(COMMANDS[noun][0]).app).help)
    assert f"gput {noun} " in "".join(examples)
    assert rest


@pytest.mark.parametrize(
    "path", [path for path, found in ALL.items() if any("--format" in p.opts for p in found.params)]
)
def test_what_prints_json_has_a_schema(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *path.split(), "--schema")  # without what the command itself would need
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert (schema["title"], schema["type"]) == (
        f"gput {path}",
        "array" if "list" in str(OUTPUTS[path])[:4] else "object",
    )
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_what_prints_no_json_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert {path for path in OUTPUTS if "--" not in path} <= ALL.keys()
    code, _, err = run(capsys, "session", "watch", "--schema")
    assert (code, "[no-schema]" in err) == (2, True)


@pytest.mark.parametrize(("words", "found"), [
    ([""], list(COMMANDS)),
    (["se"], ["session"]),
    (["session", "t"], ["timeline"]),
    (["session", "list", "--format", ""], ["table", "json", "jsonl"]),
    (["session", "list", "--ph"], ["--phase"]),
    (["session", "list", "--sch"], ["--schema"]),
    (["demo", "--mode", ""], ["paper", "scoped", "direct"]),
    (["config", "show", "h"], ["holder"]),
    (["config", "show", ""], ["orchestrator", "holder", "agent", "platform"]),
    (["config", "show", "--o"], ["--origin"]),
    (["config", "show", "holder", "--o"], ["--origin"]),
    (["config", "show", "holder", ""], []),
    (["token", "issue", "--role", "a"], ["auditor"]),
    (["party", "enrol", "--role", ""], ["holder", "auditor"]),
    (["session", "list", "--phase", "P"], ["PAUSED"]),
    (["session", "submit", "man"], []),
    (["nobody", "knows"], []),
])  # fmt: skip
def test_completion(words: list[str], found: list[str]) -> None:
    assert candidates(words, COMMANDS) == found


def test_completion_loads_the_one_noun_only() -> None:
    code = """
import sys
from gput.__main__ import main
main(["completion", "words", "--", "receipts", "v"])
print([n for n in sorted(sys.modules) if n.startswith("gput.commands.")], [n for n in %r if n in sys.modules])
""".replace("%r", repr(HEAVY))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["verify", "['gput.commands.completion', 'gput.commands.manners', 'gput.commands.receipts'] []"]


def test_bash_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    (tmp_path / "gput").write_text(f'#!/bin/sh\nexec {sys.executable} -m gput "$@"\n')
    (tmp_path / "gput").chmod(0o755)
    script = 'eval "$(gput completion bash)"; COMP_WORDS=(gput session ti); COMP_CWORD=2; _gput; echo "${COMPREPLY[@]}"; complete -p gput'
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["timeline", "complete -o default -F _gput gput"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_shell_asks_the_same_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "completion", shell)
    assert (code, out) == (0, SCRIPTS[shell])
    assert "gput completion words --" in out
    if (there := shutil.which(shell)) is not None:
        subprocess.run([there, "-n", "/dev/stdin"], input=out, text=True, check=True)


@pytest.mark.parametrize(("words", "most"), [
    (["--help"], 165), (["--version"], 165), (["receipts", "verify", "--help"], 310), (["session", "--help"], 400),
    (["session", "list"], 475), (["demo", "--help"], 400), (["doctor"], 600),
    (["party", "requests"], 540), (["config", "show"], 370), (["session", "list", "--schema"], 275),
])  # fmt: skip
def test_usual_commands_load_little(words: list[str], most: int, tmp_path: Path) -> None:
    """Modules are counted in place of seconds: neither depends on who else is busy."""
    subprocess.run(
        [sys.executable, "-m", "gput", "party", "init", str(tmp_path / "k.pem")], check=True, capture_output=True
    )
    code = f"""
import sys
from gput.__main__ import main
try:
    main({words!r})
except SystemExit:
    pass
print(len(sys.modules), [n for n in {HEAVY!r} if n in sys.modules])
"""
    (tmp_path / "token").write_text("t")
    environment = {
        **os.environ, "GPUT_URL": NOBODY, "GPUT_KEY": str(tmp_path / "k.pem"), "GPUT_HOLDER_URL": NOBODY,
        "GPUT_HOLDER_TOKEN": str(tmp_path / "token"),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    count, heavy = done.stdout.splitlines()[-1].split(" ", 1)
    assert heavy == "[]"
    assert int(count) <= most


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gput.commands.session_looks import _draw
    from gput.timeline import Span

    found = [Span("orchestrator", "train", "train", "v_a", "north", 10.0, 2.0)]
    monkeypatch.setenv("FORCE_COLOR", "1")
    _draw(found)
    assert "\x1b[32m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    _draw(found)
    assert "\x1b[32m" not in capsys.readouterr().out


def test_nobody_is_asked_with_no_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            raise AssertionError("it asked")

    main(["party", "init", str(tmp_path / "k.pem")])
    monkeypatch.setattr("sys.stdin", Terminal())
    capsys.readouterr()
    words = ["session", "cancel", "s_x", "--url", NOBODY, "--key", str(tmp_path / "k.pem")]
    for more, environment in ((["--no-input"], {}), ([], {"GPUT_NO_INPUT": "1"})):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code, _, err = run(capsys, *words, *more)
        assert (code, "[needs-confirmation]" in err) == (2, True)
