"""The finished model is checked against its digest without standing in anybody's way, and handed out only then."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from orchestrator.api import model as routes
from orchestrator.files import file_digest
from orchestrator.sessions.removals import Removal
from shared.canonical import sha256
from shared.errors import NotFound, VerificationFailed
from shared.names import Role
from shared.service.signatures import Caller

ASKED: Any = SimpleNamespace(headers={})
ALICE = Caller("0f" * 32, "alice", frozenset({Role.OWNER}))


def house(path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Any:
    output = SimpleNamespace(release_to=("owner",))
    state = SimpleNamespace(
        owner="alice", exported={"sha256": sha256(content).hex()}, manifest=SimpleNamespace(output=output)
    )
    monkeypatch.setattr(routes, "visible", AsyncMock(return_value=SimpleNamespace(durable=state)))
    removals = SimpleNamespace(of=AsyncMock(return_value=None))
    return SimpleNamespace(
        house=SimpleNamespace(model_path=lambda session: path, fetches=AsyncMock(), removals=removals)
    )


async def test_it_is_hashed_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may be gigabytes: on the event loop's own thread its hash held up every visit."""
    path = tmp_path / "model"
    threads: list[threading.Thread] = []
    path.write_bytes(b"weights")

    def hashed(file: Path, algorithm: str) -> str:
        threads.append(threading.current_thread())
        return file_digest(file, algorithm)

    monkeypatch.setattr(routes, "file_digest", hashed)
    parts = house(path, monkeypatch, b"weights")
    answer = await routes.model("s_a", ASKED, ALICE, parts)
    assert answer.headers["etag"] == f'"{sha256(b"weights").hex()}"'
    assert threads[0] is not threading.main_thread()
    parts.house.fetches.record.assert_awaited_once()


async def test_one_that_was_changed_is_neither_handed_out_nor_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"other weights")
    parts = house(path, monkeypatch, b"weights")
    with pytest.raises(VerificationFailed):
        await routes.model("s_a", ASKED, ALICE, parts)
    parts.house.fetches.record.assert_not_awaited()


@pytest.mark.parametrize(("removal", "code"), [(None, "model-file-gone"), (Removal(1.0, ()), "model-removed")])
async def test_of_one_that_is_gone_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removal: Removal | None, code: str
) -> None:
    parts = house(tmp_path / "model", monkeypatch, b"weights")
    parts.house.removals.of.return_value = removal
    with pytest.raises(NotFound) as refusal:
        await routes.model("s_a", ASKED, ALICE, parts)
    assert refusal.value.code == code


async def test_one_that_is_removed_while_it_is_sent_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off, or answered with 500, by whoever removed the session in the meantime."""
    content = os.urandom(300_000)
    path = tmp_path / "model"
    for removed in ("before it begins", "in its middle"):
        path.write_bytes(content)
        answer = await routes.model("s_a", ASKED, ALICE, house(path, monkeypatch, content))
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)
            path.unlink(missing_ok=True)

        if removed == "before it begins":
            path.unlink()
        await answer(
            {"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}, AsyncMock(), send
        )
        assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (200, content)
