"""The command line's front door: finds the noun's module, runs it, turns an error into one line and an exit code.

A reader that goes away early (`gput … | head`) ends the command quietly with 141, as a shell reports a program that SIGPIPE ended. The
signal itself stays ignored: a service's broken connection would raise it, too.

Knows no command and imports none until it is asked for: `gput --help` must start in well under 0.3 s.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from gput.stop_signals import stopped_in_order
from gput.tree import command_of

# noun -> (module, summary). Further nouns come from entry points of the group `gput.commands`.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("gput.commands.demo", "Train one model on three private corpora on this machine, for real"),
    "session": ("gput.commands.session", "Draft, submit, watch, pause, resume, cancel sessions; export the model"),
    "party": ("gput.commands.party", "Keys, enrolment, a key's change; a holder's approvals and vetoes"),
    "token": ("gput.commands.token", "Bearer tokens of people: made, rotated, revoked"),
    "program": ("gput.commands.program", "Build and inspect training programs"),
    "data": ("gput.commands.data", "Check whether a dataset fits a program; make held-out records"),
    "receipts": ("gput.commands.receipts", "Verify and show the receipts of visits"),
    "attest": ("gput.commands.attest", "Verify, explain, inspect evidence of GPUs and confidential VMs"),
    "plan": ("gput.commands.plan", "Recommend steps per visit from what a visit costs here"),
    "bench": ("gput.commands.bench", "Measure this machine: visit cost, training against plain PyTorch"),
    "doctor": ("gput.commands.doctor", "Test each hop of an installation and name the failing one"),
    "smoke": ("gput.commands.smoke", "One tiny session, here or on a running installation; its receipts verified"),
    "config": ("gput.commands.config", "Every setting, its value, and where that comes from"),
    "completion": ("gput.commands.completion", "Completion of commands and options for bash, zsh, fish"),
}

TRACEBACK = "GPUT_TRACEBACK"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES = """\
Exit codes: 0 done; 1 the job failed; 2 usage or input; 3 timed out; 4 refused by policy, signature or attestation;
            5 internal error; 6 a service or device is not there; 130 interrupted;
            129, 143 stopped by SIGHUP, by SIGTERM;
            141 whoever read the output went away (`gput … | head`). What to do: docs/cli.md."""

EXAMPLES = """\
Examples:
  gput demo                              everything at once, in about a minute
  gput program build mymodel:program -o mymodel.gput
  gput data inspect records.csv --program mymodel.gput
  gput session draft mymodel.gput > manifest.json
  gput session submit manifest.json --upload mymodel.gput --wait
  gput receipts verify runs/latest/receipts
  gput attest verify report.txt chain.pem driver_rim.xml vbios_rim.xml --nonce HEX"""


@stopped_in_order
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the process's exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _streams()
    try:
        code = _outcome(words)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what fails here can still be told; at the interpreter's exit it could not
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        _let_go()
        return _unwritable(error)
    return code


def _streams() -> None:
    """Streams to which everything can be said. One that the shell closed (`2>&-`) is None, and what is printed to None goes to stdout:
    talk would stand among the data. And a character that a stream's encoding has not is a question mark there (JSON has none such)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # stderr escapes such by itself


def _outcome(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"gput {metadata.version('gpu-travelling')}")
        return 0
    module = _module(words[0])
    if module is None:
        print(f"gput: no such command: {words[0]!r}. `gput --help` lists them. [usage]", file=sys.stderr)
        return 2
    return _run(module, words)


def _help() -> str:
    rows = "\n".join(f"  {name:<10}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "gput: confidential collaborative training in which the GPU travels.\n\n"
        f"Usage: gput COMMAND [ARGS]...   (gput COMMAND --help)\n\n{EXAMPLES}\n\nCommands:\n{rows}\n\n{EXIT_CODES}"
    )


def _module(noun: str) -> str | None:
    if noun in COMMANDS:
        return COMMANDS[noun][0]
    found = metadata.entry_points(group="gput.commands", name=noun)
    return next(iter(found)).module if found else None


def _run(module: str, words: list[str]) -> int:
    from gput.output import explain
    from shared.errors import GputError

    try:
        if "--schema" in words[1:]:
            from gput.schemas import schema_of

            print(schema_of(words))
            return 0
        command = command_of(module)
        result = command(
            args=words[1:], prog_name=f"gput {words[0]}", standalone_mode=True, default_map=_from_file(command)
        )
    except GputError as error:
        _trace()
        print(f"gput: {explain(error)}", file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer and rich make an exit code 1 of it
            raise stop.__context__ from None
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        if stop.__context__ is not None and isinstance(stop.__context__.__cause__, KeyboardInterrupt):
            print("gput: interrupted", file=sys.stderr)  # a command that catches the signal itself has its own words
        return code
    except KeyboardInterrupt:
        print("gput: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        _trace()
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return _unwritable(error)
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _from_file(command: Any) -> dict[str, Any]:
    """What the configuration file says, for each command's options that listen to the environment, too."""
    from gput.config import for_options, from_file

    if not (told := from_file()):
        return {}
    verbs = getattr(command, "commands", None)

    def of(one: Any) -> dict[str, Any]:
        return for_options({option.name: option.envvar for option in one.params}, told)

    return of(command) if verbs is None else {name: of(verb) for name, verb in verbs.items()}


def _trace() -> None:
    """The traceback for whoever asked for it; never local variables, which may hold secrets."""
    if os.environ.get(TRACEBACK):
        traceback.print_exc()


def _unexpected(error: Exception) -> int:
    """A fault of ours, or of the machine, in one line."""
    from shared.service.printable import printable

    # What broke it may have come from others, and be quoted in its words.
    what = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    hint = "" if os.environ.get(TRACEBACK) else f" Set {TRACEBACK}=1 to see where."
    print(f"gput: internal error: {what}.{hint} [internal]", file=sys.stderr)
    return 5


def _unwritable(error: OSError) -> int:
    """What was to be written does not fit on the disk, or cannot be written where the output goes."""
    name = error.filename2 or error.filename  # of a copy, the second is what was written
    where = f" {name}" if name else " the output"
    print(f"gput: cannot write{where}: {error.strerror}. [cannot-write]", file=sys.stderr)
    return 2


def _pipe_closed() -> int:
    _let_go()
    return PIPE_CLOSED


def _let_go() -> None:
    """What could not be written is given up, so that Python's own flush at exit does not complain of it."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
