"""The finished model is checked against its digest without standing in anybody's way, and handed out only then."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from orchestrator.api import model as routes
from orchestrator.api.held_file import HeldFile
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


async def received(answer: Any, *, at_each: Callable[[], None] = lambda: None) -> list[Any]:
    """The messages in which an answer is sent; `at_each`: what happens meanwhile."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        at_each()

    await answer({"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}, AsyncMock(), send)
    return sent


async def test_it_is_hashed_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may be gigabytes: on the event loop's own thread its hash held up every visit."""
    path = tmp_path / "model"
    threads: list[threading.Thread] = []
    path.write_bytes(b"weights")

    digest = HeldFile.digest

    def hashed(file: HeldFile) -> str:
        threads.append(threading.current_thread())
        return digest(file)

    monkeypatch.setattr(HeldFile, "digest", hashed)
    parts = house(path, monkeypatch, b"weights")
    answer = await routes.model("s_a", ASKED, ALICE, parts)
    assert answer.headers["etag"] == f'"{sha256(b"weights").hex()}"'
    assert threads[0] is not threading.main_thread()
    parts.house.fetches.record.assert_awaited_once()
    answer.close()


async def test_one_that_was_changed_is_neither_handed_out_nor_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"other weights")
    parts = house(path, monkeypatch, b"weights")
    with pytest.raises(VerificationFailed):
        await routes.model("s_a", ASKED, ALICE, parts)
    parts.house.fetches.record.assert_not_awaited()


async def test_what_is_sent_is_what_was_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is the platform's: under the model's name there lies another file as soon as the first one was opened."""
    content, path, opened = os.urandom(300_000), tmp_path / "model", Path.open
    path.write_bytes(content)

    def swapped(file: Path, *arguments: Any, **options: Any) -> Any:
        found = opened(file, *arguments, **options)
        if file == path:
            (tmp_path / "other").write_bytes(b"other weights")
            (tmp_path / "other").rename(path)
        return found

    monkeypatch.setattr(Path, "open", swapped)
    sent = await received(await routes.model("s_a", ASKED, ALICE, house(path, monkeypatch, content)))
    assert path.read_bytes() == b"other weights"
    assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (200, content)


async def test_a_range_of_thousands_of_digits_counts_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered with 500."""
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    parts = house(path, monkeypatch, b"weights")
    asked: Any = SimpleNamespace(headers={"range": f"bytes={'9' * 5000}-"})
    answer: Any = await routes.model("s_a", asked, ALICE, parts)
    assert parts.house.fetches.record.await_args.kwargs["asked"] == len(b"weights")
    answer.close()


@pytest.mark.parametrize("failing", ["hashing", "writing it down"])
async def test_what_is_not_sent_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path, held, made = tmp_path / "model", [], HeldFile.__init__  # type: Path, list[HeldFile], Any
    path.write_bytes(b"weights")

    def kept(file: HeldFile, *arguments: Any) -> None:
        made(file, *arguments)
        held.append(file)

    monkeypatch.setattr(HeldFile, "__init__", kept)
    parts = house(path, monkeypatch, b"weights")
    if failing == "hashing":
        monkeypatch.setattr(HeldFile, "digest", Mock(side_effect=OSError("the disk")))
    else:
        parts.house.fetches.record.side_effect = OSError("the disk")
    with pytest.raises(OSError, match="the disk"):
        await routes.model("s_a", ASKED, ALICE, parts)
    assert [file._file.closed for file in held] == [True]


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
        if removed == "before it begins":
            path.unlink()
        sent = await received(answer, at_each=lambda: path.unlink(missing_ok=True))
        assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (200, content)
