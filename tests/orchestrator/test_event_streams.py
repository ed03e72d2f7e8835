"""A session's stream of events: who still hears it, and what it says but once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import httpx2
import pytest

from orchestrator.api import events
from orchestrator.sessions.keyring import KeyAway
from orchestrator.settings import OrchestratorSettings
from orchestrator.visits import training
from shared.names import Role
from shared.service import waits
from shared.service.changes import Changes
from shared.service.event_reader import Event
from shared.service.journal import Fact, Head
from shared.service.signatures import Caller
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import BASE, World, opened, prepared, submit

TOKEN = "a-reader's-token"


class Listening:
    """Tells when so many streams have said all there is, and wait."""

    def __init__(self, patch: pytest.MonkeyPatch, streams: int) -> None:
        self.all, waiting, real = asyncio.Event(), set[events._Source](), events._Source.__call__

        async def look(source: events._Source, after: int) -> Sequence[Event]:
            found = await real(source, after)
            if not found:
                waiting.add(source)
            if len(waiting) == streams:
                self.all.set()
            return found

        patch.setattr(events._Source, "__call__", look)


@pytest.fixture
async def read_world(installation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """As `world`, with a file of readers' tokens."""
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    readers = tmp_path / "readers.json"
    readers.write_text(json.dumps({hashlib.sha256(TOKEN.encode()).hexdigest(): "carol"}))
    make = OrchestratorSettings
    monkeypatch.setattr(
        "tests.orchestrator.orchestrator_world.OrchestratorSettings", lambda **said: make(reader_tokens=readers, **said)
    )
    async with opened(tmp_path) as made:
        yield made


@pytest.mark.parametrize("who", ["key", "token"])
async def test_who_was_revoked_hears_no_more(who: str, read_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = await prepared(read_world)
    session = (await submit(owner)).json()["id"]
    listening, path = Listening(monkeypatch, 2), f"/v1/sessions/{session}/events"
    bearer = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(read_world.app), base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}
    )
    streams = [
        asyncio.ensure_future(client.get(path))
        for client in (owner, read_world.client(key(1)) if who == "key" else bearer)
    ]
    await listening.all.wait()
    if who == "key":
        body = {"key": key(1).fingerprint}
        assert (await owner.put("/v1/parties/h0/revocation", json=body)).status_code == 200
    else:
        (read_world.folder / "readers.json").write_text("{}")
    assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202
    async with asyncio.timeout(60):
        kept, revoked = [answer.text for answer in await asyncio.gather(*streams)]
    assert '"fact":"cancelled"' in kept
    assert '"fact":"submitted"' in revoked
    assert '"fact":"cancelled"' not in revoked


@pytest.mark.parametrize("asked", ["?wait=30&version={version}", "?wait=30&phase={phase}", "away", "inbox"])
async def test_who_was_revoked_while_it_waited_hears_nothing(
    asked: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, wait = asyncio.Event(), Changes.wait

    async def noted(changes: Changes, seen: int, timeout_s: float) -> int:
        waiting.set()
        return await wait(changes, seen, timeout_s)

    owner = await prepared(world)
    view = (await submit(owner)).json()
    path, holder = f"/v1/sessions/{view['id']}", world.client(key(1))
    if asked == "inbox":
        heard = (await holder.get("/v1/inbox")).json()["next"]
        path, asked = "/v1/inbox", f"?wait=30&after={heard}"
    if asked == "away":  # its key is sealed to another machine, for instance: shown by its row
        monkeypatch.setattr("orchestrator.api.sessions.visible", AsyncMock(side_effect=KeyAway("away")))
        asked = "?wait=30"
    monkeypatch.setattr(Changes, "wait", noted)
    answer = asyncio.ensure_future(holder.get(path + asked.format(**view)))
    async with asyncio.timeout(60):
        await waiting.wait()
        assert (await owner.put("/v1/parties/h0/revocation", json={"key": key(1).fingerprint})).status_code == 200
        assert (await owner.post(f"/v1/sessions/{view['id']}/cancel")).status_code == 202
        refused = await answer
    assert (refused.status_code, refused.json()["code"]) == (401, "signature-key-unknown")


async def test_whoever_heard_a_session_end_waits_for_no_more_of_it(world: World) -> None:
    owner = await prepared(world)
    path = f"/v1/sessions/{(await submit(owner)).json()['id']}"
    assert (await owner.post(f"{path}/cancel")).status_code == 202
    async with asyncio.timeout(60):
        told = (await owner.get(f"{path}/events")).text
        assert '"fact":"cancelled"' in told
        last = [line.partition(": ")[2] for line in told.splitlines() if line.startswith("id: ")][-1]
        again = await owner.get(f"{path}/events", headers={"last-event-id": last})
    assert (again.status_code, again.content) == (204, b"")


async def test_one_caller_s_streams_and_waits_leave_room_for_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a connection for as long as its caller likes; with one key somebody had them all."""
    monkeypatch.setattr(waits, "MAX_OF_A_CALLER", 2)
    owner = await prepared(world)
    view = (await submit(owner)).json()
    path, holder, other = f"/v1/sessions/{view['id']}", world.client(key(1)), world.client(key(2))
    listening = Listening(monkeypatch, 2)
    streams = [asyncio.ensure_future(holder.get(f"{path}/events")) for _ in range(2)]
    async with asyncio.timeout(60):
        await listening.all.wait()
        heard = (await holder.get("/v1/inbox")).json()["next"]
        for asked in (f"{path}/events", f"{path}?wait=30&version={view['version']}", f"{path}?wait=30&phase={view['phase']}",
                      f"/v1/inbox?wait=30&after={heard}"):  # fmt: skip
            refused = await holder.get(asked)
            assert (refused.status_code, refused.json()["code"]) == (429, "too-many-streams"), asked
            assert refused.headers["retry-after"] == "5"
        assert (await holder.get(path)).status_code == 200, "what waits for nothing is answered"
        theirs = asyncio.ensure_future(other.get(f"{path}/events"))
        assert (await owner.post(f"{path}/cancel")).status_code == 202
        assert [answer.status_code for answer in await asyncio.gather(*streams, theirs)] == [200, 200, 200]
        again = await holder.get(f"{path}/events")
    assert (again.status_code, '"fact":"cancelled"' in again.text) == (200, True), "those that ended count no more"


class Training:
    """A source over a made-up session in training: facts by number, losses as `training._show` keeps them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.durable = SimpleNamespace(seq=10, id="s_1", owner="alice")
        book = SimpleNamespace(durable=self.durable, announce=Mock())
        self.told = SimpleNamespace(after=self._facts)
        self.run: Any = SimpleNamespace(losses=deque(), shown=(0, 0), book=book)
        self.after = 0
        catalogue = SimpleNamespace(open=self._open)
        supervisor = SimpleNamespace(runner=lambda session: self)
        parts: Any = SimpleNamespace(catalogue=catalogue, supervisor=supervisor)
        caller = Caller("f", "alice", frozenset({Role.OWNER}))
        self._source = events._Source(parts, caller, cast(Any, self))
        patch.setattr(events, "BATCH", 4)

    async def _open(self, session: str) -> Any:
        return self

    async def _facts(self, after: int, last: int, limit: int, known: Head) -> tuple[list[Fact], Head]:
        numbers = range(after + 1, last + 1)[:limit]
        return [Fact("s_1", n, "session.checkpointed", 0.0, {"step": -n}) for n in numbers], known

    def show(self, *steps: int) -> None:
        training._show(self.run, [(step, 0.5) for step in steps], ("v_1", "h0"))

    async def hear(self) -> list[object]:
        """Everything there is by now: of each event the step, or less than 0: the number of a fact."""
        new = []
        while found := await self._source(self.after):
            for event in found:
                assert event.id > self.after
                self.after = event.id
                new.append(event.data["step"])
        return new


async def test_a_loss_is_one_event_whatever_facts_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Training(monkeypatch)
    live.show(1, 2, 3)
    assert await live.hear() == [*range(-1, -11, -1), 1, 2, 3]
    live.show(4)
    live.durable.seq = 11  # somebody's word, in mid-training
    live.show(5)
    assert await live.hear() == [4, -11, 5], "in the order of their coming"
    live.durable.seq = 12
    assert await live.hear() == [-12]
    live.run.losses.clear()  # another visit trains
    live.show(6)
    assert await live.hear() == [6]


async def test_who_comes_late_hears_losses_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Training(monkeypatch)
    live.show(1)
    live.durable.seq = 20
    live.show(2)
    assert await live.hear() == [*range(-1, -11, -1), 1, *range(-11, -21, -1), 2]
