"""`gput token issue|revoke|list`: the orchestrator's file of readers, which counts without a restart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from gput.__main__ import main
from orchestrator.readers import reader_tokens
from shared.errors import ConfigurationError, Conflict, TimedOut
from shared.names import Role
from shared.service.reader_tokens import token_digest


def run(*words: str) -> int:
    return main(("token", *words))


def holder(monkeypatch: pytest.MonkeyPatch, put_json: AsyncMock) -> None:
    """A holder's service that answers so."""
    peers = AsyncMock()
    peers.__aenter__.return_value = peers
    peers.__aexit__.return_value = None
    peers.peer = Mock(return_value=Mock(put_json=put_json))
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_token_that_root_rotates_stays_the_service_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "operator.token"
    token.write_text("a" * 64)
    os.chown(token, 10001, 10001)
    holder(monkeypatch, AsyncMock())
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
