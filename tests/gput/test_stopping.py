"""What a person or a terminal stops is stopped in order: a demo that nobody hears any more, a question that is not answered."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import signal
import sys
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest

from gput.__main__ import main
from gput.commands import demo as command
from gput.local.demo import Demo
from shared.crypto.signing import PartyKey
from tests.gput.test_gput_commands import NOBODY


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
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin, sys.stderr = open(0, closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # the test runner has its own
        monkeypatch.setattr("gput.api.Api.get", AsyncMock(return_value={"name": "north", "key": "00" * 32}))
        os._exit(main(["party", *words, "--url", NOBODY, "--key", "k.pem"]))
    heard = b""
    while b"[y/N]" not in heard:
        heard += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    os.close(terminal)
