"""Where a command's output goes may end before the command does: a pipe that closes, a full disk, no stdout at all."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gput.__main__ import main
from gput.commands import session_looks
from gput.receipt_folder import LEAVES, write
from gput.timeline import Span
from tests.gput.gput_samples import Saved

QUIET = (141, "")


def gput(*words: str, stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "gput", *words], stdout=stdout, stderr=stderr, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    said = process.stderr.read() if process.stderr is not None else ""
    return process.wait(60), said


@pytest.mark.parametrize("words", [
    ["--help"],
    ["session", "--help"],
    ["program", "operators"],  # a table: rich writes it
    ["program", "operators", "--format", "json"],
], ids=" ".join)  # fmt: skip
def test_a_reader_that_is_gone_before_the_first_word(words: list[str]) -> None:
    process = gput(*words)
    assert process.stdout is not None
    process.stdout.close()
    assert ended(process) == QUIET


def test_a_reader_that_leaves_in_the_middle(saved: Saved, tmp_path: Path) -> None:
    lines = (saved.folder / LEAVES).read_bytes().splitlines(keepends=True)
    receipts = [line for line in lines if json.loads(line)["kind"] == "receipt"]
    (tmp_path / LEAVES).write_bytes(b"".join(receipts * 400))  # more than any pipe holds
    process = gput("receipts", "show", str(tmp_path), "--format", "jsonl")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["holder"]
    process.stdout.close()
    assert ended(process) == QUIET


def test_receipts_that_do_not_fit_leave_nothing_half_written(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the file that is named is the one that could not be written, not its draft nor the one that it is a copy of."""
    honest, drafted = Path.write_bytes, list[str]()

    def full(target: Path, data: bytes) -> int:
        drafted.append(target.name)
        if len(drafted) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return honest(target, data)

    bundle: dict[str, Any] = {"session": "s", "head": {}, "manifest": {}, "approvals": [], "keys": [], "leaves": []}
    monkeypatch.setattr(Path, "write_bytes", full)
    for folder in (tmp_path / "new", tmp_path / "used"):
        drafted.clear()
        (tmp_path / "used").mkdir(exist_ok=True)
        (tmp_path / "used" / "mine").touch()
        monkeypatch.setattr("gput.receipts.verify", lambda *_, at=folder, **__: write(at, bundle, saved.folder))
        assert main(["receipts", "verify", str(saved.folder)]) == 2
        named = drafted[-1].removeprefix(".").split(".jsonl")[0] + ".jsonl"
        assert f"cannot write {folder / named}: No space left on device" in capsys.readouterr().err
    assert list((tmp_path / "new").iterdir()) == []
    assert (tmp_path / "used" / "mine").exists()


def test_a_closed_stderr_is_no_traceback_either() -> None:
    process = gput("nonsense", stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    assert process.wait(60) == 141


def test_a_full_disk_is_said_in_one_line() -> None:
    for words in (["--help"], ["program", "operators"], ["program", "operators", "--format", "jsonl"]):
        with Path("/dev/full").open("w") as full:
            code, said = ended(gput(*words, stdout=full))
        assert (code, said) == (2, "gput: cannot write the output: No space left on device. [cannot-write]\n"), words


def test_without_a_stdout_the_command_still_ends_well() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m gput program operators >&-', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("words", "expected"), [
    ("nonsense", 2),  # our own words
    ("program inspect nowhere", 2),  # an error's
    ("session list --nonsense", 2),  # typer's
])  # fmt: skip
def test_without_a_stderr_no_talk_stands_among_the_data(words: str, expected: int) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m gput {words} 2>&-', sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (expected, "", "")


def test_a_live_view_is_none_where_stderr_is_closed() -> None:
    script = (
        "import sys; from gput.__main__ import main; main(['--version']); from gput.local import view;"
        "print(type(view.view_for(view.Progress(['north'], 1, 1, 0.0))).__name__)"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["PlainView"])


def test_what_a_terminals_encoding_has_not_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span("north", "provision", "provision", "v_1", "north", 0.0, 1.0)
    monkeypatch.setattr(session_looks, "with_session", lambda *_: [span])
    for words in (["--help"], ["session", "timeline", "s_1", "--url", "http://127.0.0.1:9", "--key", "k.pem"]):
        monkeypatch.setattr(sys, "stdout", terminal := io.TextIOWrapper(io.BytesIO(), "ascii"))
        assert main(words) == 0
        assert b"?" in terminal.buffer.getvalue()  # type: ignore[attr-defined]  # a BytesIO


def test_the_exit_code_is_documented() -> None:
    done = subprocess.run([sys.executable, "-m", "gput", "--help"], capture_output=True, text=True, check=True)
    assert "141 whoever read the output went away" in done.stdout


def test_a_question_with_no_stdin_at_all_is_not_confirmed() -> None:
    words = "session cancel s_x --url http://127.0.0.1:9 --key KEY"
    script = f"{sys.executable} -m gput {words} <&-"
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert (said.returncode, "[needs-confirmation]" in said.stderr) == (2, True)
