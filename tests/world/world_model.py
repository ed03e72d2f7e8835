"""A finished model on its way to the client: exchanged by whoever answers, or broken off. Knows the client's calls, no receipt's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput import UNATTESTED, AsyncClient
from gput.models import VerifiedReceipts
from orchestrator.sessions.views import summary
from shared.canonical import sha256
from shared.errors import BadRequest, Unavailable, VerificationFailed
from shared.service.http import Peers
from tests.world.world import World, url
from tests.world.world_wire import Call, Deliver, Link

ORCH = "orchestrator"


async def only_the_model_of_the_receipts(
    world: World, client: AsyncClient, held: VerifiedReceipts, folder: Path
) -> None:
    """An orchestrator answers with another model and signs that one's digest; whoever sits on the way to it cannot even do that."""
    right = await asyncio.to_thread((folder / "model.safetensors").read_bytes)
    content = right[:-1] + bytes([right[-1] ^ 1])
    digest = sha256(content).hex()

    async def other(call: Call, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(call)
        if not call.path.endswith("/model"):
            return answer
        return httpx2.Response(200, headers={"etag": f'"{digest}"'}, content=content)

    def lying(state: Any) -> dict[str, Any]:
        return summary(state) | {"model": {**state.exported, "sha256": digest}}

    world.wire.hooks.append(other)
    before = len(world.wire.calls("owner", ORCH, "/log/head"))
    with pytest.MonkeyPatch.context() as patch:
        for receipts, code in (
            (held, "model-altered"),
            (held, "model-not-of-receipts"),
            (None, "model-not-of-receipts"),
        ):
            with pytest.raises(VerificationFailed) as refused:
                await client.sessions.model(held.session, folder / "other", receipts=receipts)
            assert refused.value.code == code
            patch.setattr("orchestrator.api.sessions.summary", lying)
    after = len(world.wire.calls("owner", ORCH, "/log/head"))
    assert after - before == 1, "what is verified is not asked again"
    others = held.model_copy(update={"session": "s_aaaaaaaaaaaaaaaa"})
    with pytest.raises(BadRequest) as refusal:
        await client.sessions.model(held.session, folder / "other", receipts=others)
    assert refusal.value.code == "other-session"
    world.wire.hooks.remove(other)
    assert not await _named(folder, "other*")


async def _named(folder: Path, pattern: str) -> list[Path]:
    return await asyncio.to_thread(lambda: list(folder.glob(pattern)))


class Breaking(httpx2.AsyncBaseTransport):
    """Every answer with a model breaks off after so many bytes, the given number of times."""

    def __init__(self, link: Link, after: int, times: float) -> None:
        self.link, self.after, self.times, self.ranges = link, after, times, list[str]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self.link.handle_async_request(request)
        if not request.url.path.endswith("/model"):
            return answer
        self.ranges.append(request.headers.get("range", ""))
        if len(self.ranges) > self.times:
            return answer
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=Broken(answer.content[: self.after]))


class Broken(httpx2.AsyncByteStream):
    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content
        raise httpx2.ReadError("the line broke")


async def a_broken_stream_is_taken_up(world: World, session: str, model: Path) -> None:
    content, target = await asyncio.to_thread(model.read_bytes), model.with_name("again")
    cases = (300, 2, ["", "bytes=300-", "bytes=600-"]), (len(content), 1, [""])
    for after, times, ranges in cases:
        link = Breaking(Link(world.wire, "owner", ORCH), after, times)
        peers = Peers(transports={url(ORCH): link})
        async with AsyncClient(url(ORCH), world.key("owner"), trust=UNATTESTED, peers=peers) as client:
            await client.sessions.model(session, target)
        assert (await asyncio.to_thread(target.read_bytes), link.ranges) == (content, ranges)
        target.unlink()
    link = Breaking(Link(world.wire, "owner", ORCH), 0, inf)
    async with AsyncClient(
        url(ORCH), world.key("owner"), trust=UNATTESTED, peers=Peers(transports={url(ORCH): link})
    ) as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gput.api.PATIENCE_S", 0.0)
            with pytest.raises(Unavailable):
                await client.sessions.model(session, target)
    assert not await _named(model.parent, "again*"), "nothing is left of what did not come"
