"""A session's stream of events: who still hears it, and what it says but once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx2
import pytest

from orchestrator.api import events
from orchestrator.settings import OrchestratorSettings
from shared.service.event_reader import Event
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
