"""Who fetched the finished model can be read by everybody of the session, also after a restart; who was refused it has not fetched it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gput.client import UNATTESTED, AsyncClient
from orchestrator.sessions.fetches import WINDOW_S
from shared.canonical import sha256
from shared.errors import Conflict, NotPermitted
from shared.service.http import Peers
from tests.world.world import NewWorld, url
from tests.world.world_search import leaks
from tests.world.world_wire import Link

ORCH = "orchestrator"


async def test_a_fetch_is_written_down_before_the_model_is_handed_out(new_world: NewWorld, tmp_path: Path) -> None:
    async with new_world() as world:
        session = await world.submit()
        with pytest.raises(Conflict):
            await world.owner.model(session, tmp_path / "early")
        await world.completed(session)
        peers = Peers(transports={url(ORCH): Link(world.wire, "city", ORCH)})
        holder = AsyncClient(url(ORCH), world.key("city"), trust=UNATTESTED, peers=peers, clock=world.clock_of("city"))
        with pytest.raises(NotPermitted):
            await holder.model(session, tmp_path / "refused")
        path = f"sessions/{session}/model/fetches"
        assert await world.owner.items(path) == []
        for _ in range(2):
            for _ in range(2):
                await world.owner.model(session, tmp_path / "model")
            world.offset += WINDOW_S + 1
        content = (tmp_path / "model").read_bytes()
        assert leaks(world.files(), [content[-64:]]) == [], "what lies on the disk is sealed"
        await world[ORCH].kill()
        await world[ORCH].start()
        rows = await holder.items(path)
        assert [(row["party"], row["role"]) for row in rows] == [("owner", "owner")] * 2
        assert [(row["requests"], row["bytes"]) for row in rows] == [(2, 2 * len(content))] * 2
        assert {(row["sha256"], row["size_bytes"]) for row in rows} == {(sha256(content).hex(), len(content))}
        assert (await world.owner.get(path, limit=1))["next"] is not None
        assert (await world.owner.session(session))["bytes"]["model_to_holders"] == 0
        await holder.close()
