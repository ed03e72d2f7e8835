"""The finished model is checked against its digest without standing in anybody's way, and handed out only then."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from orchestrator.api import model as routes
from orchestrator.api.held_file import HeldFile
from orchestrator.model_file import ModelFile
from orchestrator.sessions.removals import Removal
from shared.canonical import sha256
from shared.crypto.secret import Secret
from shared.errors import NotFound, NotPermitted, VerificationFailed
from shared.names import Role
from shared.service.signatures import Caller

ASKED: Any = SimpleNamespace(headers={})
ALICE = Caller("0f" * 32, "alice", frozenset({Role.OWNER}))


async def model_in(folder: Path, content: bytes | None = None) -> ModelFile:
    """The model's file in a folder; with `content`, sealed there."""
    model = ModelFile(folder, Secret(bytes(range(32))), "s_a", os.urandom)
    if content is not None:
        async with model.making() as file:
            file.write(content)
            with file.read_back() as (found, size):
                assert (found.read(), size) == (content, len(content))
    return model


def house(model: ModelFile, monkeypatch: pytest.MonkeyPatch, content: bytes) -> Any:
    output = SimpleNamespace(release_to=("owner",))
    state = SimpleNamespace(
        owner="alice",
        owner_key=ALICE.fingerprint,
        active=("alice",),
        exported={"sha256": sha256(content).hex()},
        manifest=SimpleNamespace(output=output),
    )
    monkeypatch.setattr(routes, "visible", AsyncMock(return_value=SimpleNamespace(durable=state)))
    removals = SimpleNamespace(of=AsyncMock(return_value=None))
    return SimpleNamespace(house=SimpleNamespace(model=lambda session: model, fetches=AsyncMock(), removals=removals))


async def received(
    answer: Any, *, at_each: Callable[[], None] = lambda: None, headers: Sequence[tuple[bytes, bytes]] = ()
) -> list[Any]:
    """The messages in which an answer is sent; `at_each`: what happens meanwhile. `headers`: of the request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        at_each()

    await answer(
        {"type": "http", "method": "GET", "headers": list(headers), "asgi": {"spec_version": "2.4"}}, AsyncMock(), send
    )
    return sent


async def test_it_is_hashed_on_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may be gigabytes: on the event loop's own thread its hash held up every visit."""
    model = await model_in(tmp_path, b"weights")
    threads: list[threading.Thread] = []

    digest = HeldFile.digest

    def hashed(file: HeldFile) -> str:
        threads.append(threading.current_thread())
        return digest(file)

    monkeypatch.setattr(HeldFile, "digest", hashed)
    parts = house(model, monkeypatch, b"weights")
    answer = await routes.model("s_a", ASKED, ALICE, parts)
    assert answer.headers["etag"] == f'"{sha256(b"weights").hex()}"'
    assert threads[0] is not threading.main_thread()
    parts.house.fetches.record.assert_awaited_once()
    answer.close()


async def test_one_that_was_changed_is_neither_handed_out_nor_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await model_in(tmp_path, b"other weights")
    parts = house(model, monkeypatch, b"weights")
    with pytest.raises(VerificationFailed):
        await routes.model("s_a", ASKED, ALICE, parts)
    parts.house.fetches.record.assert_not_awaited()


async def test_what_is_sent_is_what_was_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is the platform's: under the model's name there lies another file as soon as the first one was opened."""
    content, opened = os.urandom(300_000), Path.open
    model, other = await model_in(tmp_path, content), await model_in(tmp_path / "other", b"other weights")

    def swapped(file: Path, *arguments: Any, **options: Any) -> Any:
        found = opened(file, *arguments, **options)
        if file == model.path and other.path.exists():
            other.path.rename(model.path)
        return found

    monkeypatch.setattr(Path, "open", swapped)
    sent = await received(await routes.model("s_a", ASKED, ALICE, house(model, monkeypatch, content)))
    assert model.open().file.read() == b"other weights"
    assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (200, content)


@pytest.mark.parametrize("failing", ["choosing", "hashing", "writing it down"])
async def test_what_is_not_sent_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    model, held, made = await model_in(tmp_path, b"weights"), [], HeldFile.__init__  # type: ModelFile, list[HeldFile], Any

    def kept(file: HeldFile, *arguments: Any) -> None:
        made(file, *arguments)
        held.append(file)

    monkeypatch.setattr(HeldFile, "__init__", kept)
    parts = house(model, monkeypatch, b"weights")
    if failing != "writing it down":
        part = "digest" if failing == "hashing" else "choose"
        monkeypatch.setattr(HeldFile, part, Mock(side_effect=OSError("the disk")))
    else:
        parts.house.fetches.record.side_effect = OSError("the disk")
    with pytest.raises(OSError, match="the disk"):
        await routes.model("s_a", ASKED, ALICE, parts)
    assert [file._file.closed for file in held] == [True]


async def test_one_that_its_owner_removed_is_not_handed_out_though_its_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the wish and the file's removal."""
    parts = house(await model_in(tmp_path, b"weights"), monkeypatch, b"weights")
    parts.house.removals.of.return_value = Removal(1.0, ("h0",))
    with pytest.raises(NotFound) as refusal:
        await routes.model("s_a", ASKED, ALICE, parts)
    assert refusal.value.code == "model-removed"
    parts.house.fetches.record.assert_not_awaited()


@pytest.mark.parametrize(
    ("removals", "code"), [([None, None], "model-file-gone"), ([None, Removal(1.0, ())], "model-removed")]
)
async def test_of_one_that_is_gone_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: list[Removal | None], code: str
) -> None:
    parts = house(await model_in(tmp_path), monkeypatch, b"weights")
    parts.house.removals.of.side_effect = removals
    with pytest.raises(NotFound) as refusal:
        await routes.model("s_a", ASKED, ALICE, parts)
    assert refusal.value.code == code


async def test_one_that_is_removed_while_it_is_sent_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off, or answered with 500, by whoever removed the session in the meantime."""
    content = os.urandom(300_000)
    for removed in ("before it begins", "in its middle"):
        model = await model_in(tmp_path, content)
        answer = await routes.model("s_a", ASKED, ALICE, house(model, monkeypatch, content))
        if removed == "before it begins":
            model.path.unlink()
        sent = await received(answer, at_each=lambda model=model: model.path.unlink(missing_ok=True))
        assert (sent[0]["status"], b"".join(one["body"] for one in sent[1:])) == (200, content)


async def test_it_lies_sealed_and_comes_out_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"weights" * 1000
    model = await model_in(tmp_path, content)
    assert b"weights" not in model.path.read_bytes()  # a few bytes
    sent = await received(await routes.model("s_a", ASKED, ALICE, house(model, monkeypatch, content)))
    headers = dict(sent[0]["headers"])
    assert (headers[b"content-length"], b"".join(one["body"] for one in sent[1:])) == (b"7000", content)


async def test_one_that_a_release_before_left_plain_is_still_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    sent = await received(
        await routes.model("s_a", ASKED, ALICE, house(await model_in(tmp_path), monkeypatch, b"weights"))
    )
    assert b"".join(one["body"] for one in sent[1:]) == b"weights"


async def test_one_that_is_broken_on_disk_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = await model_in(tmp_path, b"weights")
    model.path.write_bytes(model.path.read_bytes()[:-1])
    with pytest.raises(VerificationFailed) as refusal:
        await routes.model("s_a", ASKED, ALICE, house(model, monkeypatch, b"weights"))
    assert refusal.value.code == "stored-file-changed"


async def test_one_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    async def failing() -> None:
        async with (await model_in(tmp_path)).making() as file:
            file.write(b"weights")
            raise VerificationFailed("not the committed model")

    with pytest.raises(VerificationFailed):
        await failing()
    assert os.listdir(tmp_path) == []


async def test_one_that_nobody_read_back_is_whole(tmp_path: Path) -> None:
    model = await model_in(tmp_path)
    async with model.making() as file:
        file.write(b"weights")
    assert model.open().file.read() == b"weights"


@pytest.mark.parametrize(
    ("caller", "code"),
    [
        (Caller("1e" * 32, "alice", frozenset({Role.OWNER})), "owner-key-replaced"),  # a key in the old one's place
        (Caller("0f" * 32, "bob", frozenset({Role.OWNER})), "output-policy"),
        (Caller("", "alice", frozenset({Role.OWNER})), "output-policy"),  # a bearer token
        (Caller("0f" * 32, "alice", frozenset({Role.HOLDER})), "output-policy"),
    ],
)
async def test_an_owners_model_goes_to_the_key_that_signed_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: Caller, code: str
) -> None:
    parts = house(await model_in(tmp_path, b"weights"), monkeypatch, b"weights")
    with pytest.raises(NotPermitted) as refusal:
        await routes.model("s_a", ASKED, caller, parts)
    assert refusal.value.code == code
    parts.house.fetches.record.assert_not_awaited()
