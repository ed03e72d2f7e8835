"""`gput token issue|revoke|list`: the orchestrator's file of readers, which counts without a restart."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from gput.__main__ import main
from orchestrator.readers import reader_tokens
from shared.errors import ConfigurationError, Conflict, TimedOut, Unavailable
from shared.names import Role
from shared.service.reader_tokens import read_readers, token_digest


def run(*words: str) -> int:
    return main(("token", *words))


def holder(monkeypatch: pytest.MonkeyPatch, request: AsyncMock, get_json: AsyncMock | None = None) -> None:
    """A service that answers so, at a holder's address."""
    peers = AsyncMock()
    peers.__aenter__.return_value = peers
    peers.__aexit__.return_value = None
    peers.peer = Mock(return_value=Mock(request=request, get_json=get_json, unintelligible=Unavailable))
    monkeypatch.setattr("gput.commands.token.Peers", lambda **options: peers)


async def test_a_token_counts_from_its_issue_to_its_revocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file, mine = tmp_path / "readers.json", tmp_path / "maria.token"
    file.write_text(json.dumps({token_digest("of long ago"): "paul"}))
    file.chmod(0o640)
    resolve = reader_tokens(file)
    assert resolve is not None
    assert run("issue", "maria", "--file", "readers.json", "--role", "owner") == 0
    first = mine.read_text().strip()
    assert mine.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_mode & 0o777 == 0o640  # the service can read it as before
    assert first not in file.read_text()
    found = await resolve(first)
    assert found is not None
    assert (found.name, found.roles, found.fingerprint) == ("maria", {Role.AUDITOR, Role.OWNER}, "")
    assert run("issue", "maria", "--file", "readers.json") == 1  # not by accident
    assert "[token-exists]" in capsys.readouterr().err
    assert await resolve(first) is not None
    assert run("issue", "maria", "--file", "readers.json", "--replace") == 0
    second = mine.read_text().strip()
    found = await resolve(second)
    assert (await resolve(first), found and found.roles) == (None, {Role.AUDITOR})
    assert run("revoke", "maria", "--file", "readers.json") == 2  # nobody is there to ask
    assert run("revoke", "maria", "--file", "readers.json", "--yes") == 0
    assert await resolve(second) is None
    assert await resolve("of long ago") is not None
    assert run("revoke", "maria", "--file", "readers.json", "--yes") == 2
    capsys.readouterr()
    assert run("list", "--file", "readers.json", "--format", "json") == 0
    listed = capsys.readouterr().out
    assert json.loads(listed) == [{"name": "paul", "role": "auditor", "sha256": token_digest("of long ago")}]


def test_a_token_counts_until_its_successor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("issue", "maria", "--file", "readers.json") == 0
    counts, known = (tmp_path / "maria.token").read_text(), (tmp_path / "readers.json").read_text()

    replaced = os.replace

    def refused(source: Path, target: Path) -> None:
        if target.name == "readers.json":
            raise PermissionError(errno.EACCES, "Permission denied")
        replaced(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("shared.service.reader_tokens.os.replace", refused)
        assert run("issue", "maria", "--file", "readers.json", "--replace") == 2
        assert run("issue", "paul", "--file", "readers.json") == 2
    assert "cannot be written" in capsys.readouterr().err
    assert ((tmp_path / "maria.token").read_text(), (tmp_path / "readers.json").read_text()) == (counts, known)
    assert {path.name for path in tmp_path.glob("*.token*")} == {"maria.token"}  # nothing is in the way of the next try
    assert run("issue", "paul", "--file", "readers.json") == 0


@pytest.mark.parametrize("words", [["issue", "paul"], ["revoke", "paul", "--yes"]], ids=" ".join)
def test_a_revoked_token_is_not_brought_back_by_who_writes_at_once(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other command has read the file when maria's token is revoked, and writes afterwards."""
    monkeypatch.chdir(tmp_path)
    assert run("issue", "maria", "--file", "readers.json") == 0
    if words[0] == "revoke":
        assert run("issue", "paul", "--file", "readers.json") == 0
    (reads, told), (goes_on, go) = os.pipe(), os.pipe()
    writing = importlib.import_module("gput.commands.token").write_readers

    def later(*given: Any) -> None:
        os.write(told, b".")
        os.read(goes_on, 1)
        writing(*given)

    if not (other := os.fork()):
        monkeypatch.setattr("gput.commands.token.write_readers", later)
        os._exit(run(*words, "--file", "readers.json"))
    os.read(reads, 1)
    revoking = subprocess.Popen(
        [sys.executable, "-m", "gput", "token", "revoke", "maria", "--file", "readers.json", "--yes"]
    )
    while revoking.poll() is None and not _waits_for_a_lock(revoking.pid):
        time.sleep(0.01)
    os.write(go, b".")
    assert os.waitpid(other, 0)[1] == 0
    assert revoking.wait(60) == 0
    assert [reader.name for reader in read_readers(tmp_path / "readers.json").values()] == ["paul"] * (
        words[0] == "issue"
    )


def _waits_for_a_lock(process: int) -> bool:
    return any(
        line.split()[1:3] == ["->", "FLOCK"] and line.split()[5] == str(process)
        for line in Path("/proc/locks").read_text().splitlines()
    )


@pytest.mark.parametrize(
    ("ends", "kept"), [(KeyboardInterrupt(), True), (TimedOut("late"), True), (Conflict("the auditor's"), False)]
)
def test_a_token_that_may_count_outlives_its_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException, kept: bool
) -> None:
    token, draft = tmp_path / "operator.token", tmp_path / "operator.token.next"
    token.write_text("a" * 64)
    holder(monkeypatch, AsyncMock(side_effect=ends))
    assert run("rotate", "--holder-url", "http://127.0.0.1:9", "--token", str(token)) != 0
    assert (draft.exists(), token.read_text()) == (kept, "a" * 64)


def test_a_token_that_another_program_took_is_not_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token, draft = tmp_path / "operator.token", tmp_path / "operator.token.next"
    token.write_text("a" * 64)
    holder(monkeypatch, AsyncMock(return_value=Mock(status_code=200)), AsyncMock(return_value={}))
    for _ in range(2):  # the first leaves a draft, which the second asks about
        assert run("rotate", "--holder-url", "http://127.0.0.1:9", "--token", str(token)) == 6
        assert (draft.exists(), token.read_text()) == (True, "a" * 64)
    assert "[peer-unintelligible]" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_token_that_root_rotates_stays_the_service_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "operator.token"
    token.write_text("a" * 64)
    os.chown(token, 10001, 10001)
    holder(monkeypatch, AsyncMock(return_value=Mock(status_code=204)))
    assert run("rotate", "--holder-url", "http://127.0.0.1:9", "--token", str(token)) == 0
    assert token.read_text() != "a" * 64
    assert (token.stat().st_uid, token.stat().st_mode & 0o777) == (10001, 0o600)


async def test_a_file_that_cannot_be_read_any_more_admits_nobody(tmp_path: Path) -> None:
    file = tmp_path / "readers.json"
    file.write_text(json.dumps({token_digest("t"): "paul"}))
    resolve = reader_tokens(file)
    assert resolve is not None
    assert await resolve("t") is not None
    file.write_text("{")
    assert await resolve("t") is None
    file.unlink()
    assert await resolve("t") is None
    file.write_text(json.dumps({token_digest("t"): "paul"}))
    assert await resolve("t") is not None
    file.write_text(json.dumps({token_digest("t"): {"name": "paul", "role": "holder"}}))
    with pytest.raises(ConfigurationError):
        reader_tokens(file)
