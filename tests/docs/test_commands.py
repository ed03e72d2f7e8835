"""Every command that README and docs show exists, with its options and arguments, and is executed by a test or left out with a reason."""

from __future__ import annotations

import pytest

from tests.docs.extract import ROOT, Block, Command, commands, pages, shown, spoken
from tests.docs.judge import fault, path
from tests.docs.reasons import LEFT_OUT, RUNS, UNPARSED

OURS = ("gput", "make", "docker", "python", "git")
SHOWN = [command for page in pages() for command in shown(page)]
SPOKEN = [command for page in pages() for command in spoken(page)]


def begins(command: Command, entries: dict[str, str]) -> list[str]:
    """The entries that the command begins with, word by word; of a module any one below it."""
    words = " ".join(command.words)
    return [entry for entry in entries if f"{words} ".startswith((f"{entry} ", f"{entry}."))]


def unexecuted() -> list[Command]:
    """Those in no shell block of a page that runs, and whose like is in none either. Plain tools of the shell do not count."""
    executed = {path(one.words) for one in SHOWN if one.shell and one.page in RUNS}
    return [one for one in SHOWN if one.words[0] in OURS and path(one.words) not in executed]


def test_the_docs_show_commands() -> None:
    assert len(SHOWN) > 50
    assert len(SPOKEN) > 30
    assert {command.page for command in SHOWN} >= {"README.md", *RUNS}


def test_every_command_that_is_shown_exists() -> None:
    wrong = [(one.where, fault(one)) for one in SHOWN if not begins(one, UNPARSED)]
    assert not [f"{where}: {why}" for where, why in wrong if why]


def test_every_command_in_running_text_exists() -> None:
    wrong = [(one.where, fault(one, whole=False)) for one in SPOKEN]
    assert not [f"{where}: {why}" for where, why in wrong if why]


def test_every_command_is_executed_or_has_a_reason() -> None:
    bare = [one.where for one in unexecuted() if not begins(one, LEFT_OUT)]
    assert not bare, "show them on a page that runs, or say why not in tests/docs/reasons.py"


def test_every_reason_is_still_needed() -> None:
    needed = {entry for one in unexecuted() for entry in begins(one, LEFT_OUT)}
    assert sorted(LEFT_OUT.keys() - needed) == []
    assert sorted(UNPARSED.keys() - {entry for one in SHOWN for entry in begins(one, UNPARSED)}) == []


@pytest.mark.parametrize(("text", "says"), [
    ("gput nonsense", "no such command"),
    ("gput session nonsense", "no such command"),
    ("gput session submit manifest.json --uplaod x", "No such option"),
    ("gput session submit", "Missing argument"),
    ("gput demo --rounds many", "valid integer"),
    ("make nonsense", "no such target"),
    ("python -m docs.nonsense", "no such module"),
    ("python -m orchestrator --confg x", "no such option"),
    ("docker compose run --rm nobody", "no such service"),
    ("docker compose -f docker-compose.nowhere.yml up", "no such file"),
    ("frobnicate", "no program"),
])  # fmt: skip
def test_a_command_that_is_wrong_is_found(text: str, says: str) -> None:
    (command,) = commands(Block("page.md", 1, "sh", (text,)))
    assert says in (fault(command) or "")


def test_the_shell_of_a_block_is_read_as_a_shell_would() -> None:
    lines = (
        "session=$(gput session submit m.json --format json | python3 -c 'print(1)')  # kept",
        "cat > a.toml <<'END'",
        "gput nonsense",
        "END",
        'for holder in north city; do gput party request "$session" \\',
        "  --token $holder/t > out.json; done",
        "make demo && gput doctor &",
    )
    found = [command.words for command in commands(Block("page.md", 10, "sh", lines))]
    assert found == [
        ("gput", "session", "submit", "m.json", "--format", "json"), ("python3", "-c", "print(1)"),
        ("cat",), ("gput", "party", "request", "$session", "--token", "$holder/t"), ("make", "demo"), ("gput", "doctor"),
    ]  # fmt: skip
    assert [one.line for one in commands(Block("page.md", 10, "sh", lines))] == [10, 10, 11, 14, 16, 16]


def test_blocks_that_are_no_shell_give_only_what_begins_with_a_program() -> None:
    lines = ("gput doctor      tests each hop", "    client ── REST", "GPUT_URL=x gput doctor", "gputs")
    assert [one.words for one in commands(Block("p", 1, None, lines))] == [("gput", "doctor"), ("gput", "doctor")]
    assert not list(commands(Block("p", 1, "json", lines)))


def test_pages_that_run_exist() -> None:
    assert not [page for page in RUNS if not (ROOT / page).is_file()]
