"""What a person or a terminal stops is stopped in order: a demo that nobody hears any more, a question that is not answered."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pty
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from gput.__main__ import main
from gput.commands import demo as command
from gput.files import fleeting
from gput.local.demo import Demo
from gput.stop_signals import run_in_order, stopped_in_order
from shared.claims.session_ids import session_id
from shared.crypto.signing import PartyKey
from tests.gput.test_gput_commands import NOBODY


@pytest.mark.usefixtures("hanging_up")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
async def test_a_demo_whose_terminal_is_gone_is_stopped_all_the_same(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "say", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    demo = Mock(kept=False, stop=AsyncMock())

    async def work() -> int:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
        return 0

    with pytest.raises(OSError, match="Input/output"):
        await command._until_stopped(cast("Demo", demo), work())
    demo.stop.assert_awaited_once_with()


@pytest.mark.usefixtures("hanging_up")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
async def test_a_demo_that_is_stopped_ends_with_the_code_that_the_page_says(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "say", Mock())

    async def work() -> int:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
        return 0

    code = await command._until_stopped(cast("Demo", Mock(kept=False, stop=AsyncMock())), work())
    assert code == 128 + number
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert [line for line in page.splitlines() if re.match(rf"\| ([\d, ]+, )?{code}(, [\d, ]+)? \|", line)]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
async def test_a_demo_is_not_stopped_by_what_its_caller_had_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)  # as `nohup` does
    demo = Mock(kept=False, stop=AsyncMock())

    async def work() -> int:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)
        return 7

    try:
        assert await command._until_stopped(cast("Demo", demo), work()) == 7
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("words", [["revoke-key", "north"], ["replace-key", "north", "k.pub"]], ids=" ".join)
def test_ctrl_c_at_a_question_ends_the_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process and on a terminal of its own."""
    monkeypatch.chdir(tmp_path)
    key = PartyKey.generate()
    key.save(tmp_path / "k.pem")
    (tmp_path / "k.pub").write_bytes(key.public_pem)
    process, terminal = pty.fork()
    if not process:
        signal.alarm(60)  # a command that hangs ends, and not well
        gc.callbacks.clear()  # hypothesis measures collections: a Ctrl-C that met its callback would be reported and lost
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin, sys.stderr = open(0, closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # the test runner has its own
        monkeypatch.setattr("gput.api.Api.party", AsyncMock(return_value={"name": "north", "key": "00" * 32}))
        os._exit(main(["party", *words, "--url", NOBODY, "--key", "k.pem"]))
    heard = b""
    while b"[y/N]" not in heard:
        heard += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    os.close(terminal)


def in_a_process(command: Callable[[], int]) -> int:
    """Its exit code, as whoever started it sees it: of a process that a signal ended, minus the signal's number."""
    process = os.fork()
    if not process:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(command())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize(("number", "ctrl_c"), [
    (signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.default_int_handler), (signal.SIGTERM, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_IGN),
], ids=["ctrl-c", "hangup", "term", "hangup in the background", "term in the background"])  # fmt: skip
def test_a_smoke_test_that_is_stopped_cancels_its_session(
    number: signal.Signals, ctrl_c: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` sends its signal twice, and an impatient person Ctrl-C while the session is being cancelled."""

    async def waits(_session: str) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    async def act(session: str, what: str) -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)
        (tmp_path / session).write_text(what)

    async def drafted(*_: object) -> SimpleNamespace:
        return SimpleNamespace(roster=[SimpleNamespace(holder="north")])

    def command() -> int:
        signal.signal(signal.SIGINT, ctrl_c)
        return main(["smoke", str(tmp_path / "p.gput"), "--url", NOBODY, "--key", "k.pem", "--trust", str(tmp_path)])

    async def submit(_manifest: object, idempotency_key: str) -> dict[str, str]:
        return {"id": session_id("owner", idempotency_key), "owner": "owner"}

    client = MagicMock(upload_program=AsyncMock(), submit=submit, wait=waits, act=act)
    client.__aenter__.return_value = client
    monkeypatch.setattr("gput.smoke._manifest", drafted)
    monkeypatch.setattr("gput.client.AsyncClient", Mock(return_value=client))
    (tmp_path / "p.gput").touch()
    assert in_a_process(command) == 128 + number
    assert [file.read_text() for file in tmp_path.glob("s_*")] == ["cancel"]


def test_a_passing_folder_goes_when_its_command_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def command(*_: object, **__: object) -> int:
        with fleeting("gput-test-") as folder:
            (folder / "k.pem").touch()
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        return 0

    monkeypatch.setattr("gput.receipts.verify", command)
    assert in_a_process(lambda: main(["receipts", "verify", str(tmp_path)])) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_what_nohup_has_ignored_stays_so_and_all_is_as_it_was_afterwards() -> None:
    def command() -> int:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

        @stopped_in_order
        def work() -> int:
            os.kill(os.getpid(), signal.SIGHUP)
            return 7

        code = work()
        return code if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 8

    assert in_a_process(command) == 7


def test_a_second_ctrl_c_does_not_break_off_the_stop(tmp_path: Path) -> None:
    """Services of a rehearsal would run on, and its folder stay."""

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
            (tmp_path / "stopped").touch()

    def command() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run_in_order(work())
        except KeyboardInterrupt:
            return 130 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 1
        return 0

    assert in_a_process(command) == 130
    assert (tmp_path / "stopped").exists()
