"""`gput session export` and `receipts` write as every command does: whole or not at all, a link's file, a private one privately."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gput.__main__ import main
from gput.commands.party import PUBLIC
from gput.download import Exported
from gput.receipt_folder import TRUST
from shared.crypto.signing import PartyKey
from tests.gput.test_gput_commands import NOBODY

SESSION = "s_" + "a" * 16


class Fetched:
    """In the place of a download: the model comes, and the mode of the draft that it comes into is kept."""

    modes: list[int]
    fault: OSError | None = None

    def __init__(self, path: str, into: Path, expected: Exported | None) -> None:
        self._into = into

    async def run(self, peer: Any, patience_s: float) -> None:
        Fetched.modes.append(self._into.stat().st_mode & 0o777)
        self._into.write_bytes(b"model")
        if Fetched.fault is not None:
            raise Fetched.fault


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("gput.api.Download", Fetched)
    monkeypatch.setattr("gput.api.Api.session", AsyncMock(return_value={"model": None}))
    Fetched.modes, Fetched.fault = [], None
    PartyKey.generate().save(tmp_path / "k.pem")
    (tmp_path / "out").mkdir()
    return [SESSION, "--url", NOBODY, "--key", str(tmp_path / "k.pem")]


def test_a_private_model_stays_private_and_a_link_a_link(tmp_path: Path, signed: list[str]) -> None:
    target, link = tmp_path / "out" / "m", tmp_path / "out" / "latest"
    target.write_bytes(b"before")
    target.chmod(0o600)
    link.symlink_to("m")
    assert main(["session", "export", *signed, "-o", str(link)]) == 0
    assert (link.is_symlink(), target.read_bytes(), target.stat().st_mode & 0o777) == (True, b"model", 0o600)
    assert Fetched.modes == [0o600]
    assert {path.name for path in target.parent.iterdir()} == {"m", "latest"}


def test_a_pipe_is_written_to(tmp_path: Path, signed: list[str]) -> None:
    pipe, heard = tmp_path / "out" / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main(["session", "export", *signed, "-o", str(pipe)]) == 0
    reader.join(20)
    assert (heard, pipe.is_fifo()) == ([b"model"], True)


def test_a_name_as_long_as_the_system_takes(tmp_path: Path, signed: list[str]) -> None:
    target = tmp_path / "out" / ("m" * 255)
    assert main(["session", "export", *signed, "-o", str(target)]) == 0
    assert target.read_bytes() == b"model"


@pytest.mark.parametrize("fault", [None, OSError(errno.ENOSPC, "No space left on device")])
def test_what_cannot_be_written_is_the_caller_s(
    fault: OSError | None, tmp_path: Path, signed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Fetched.fault = fault
    target = "/proc/x.st" if fault is None else str(tmp_path / "out" / "m")
    assert main(["session", "export", *signed, "-o", target]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "[cannot-write]" in line
    assert list((tmp_path / "out").iterdir()) == []


def test_receipts_never_go_into_the_trust_folder(
    tmp_path: Path, signed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in TRUST:
        (tmp_path / "out" / name).write_text(name)
    trust = str(tmp_path / "out")
    assert main(["session", "receipts", *signed, "--trust", trust, "-o", trust]) == 2
    assert "[same-file]" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {name: name for name in TRUST}


def test_a_key_s_name_that_is_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["party", "init", str(tmp_path / ("k" * 252 + ".pem"))]) == 2
    assert "[cannot-write]" in capsys.readouterr().err
    assert list(tmp_path.glob(f"*{PUBLIC}")) == []
