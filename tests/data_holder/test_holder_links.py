"""The holder's link to the orchestrator: what is not the orchestrator's answer is taken for no answer, by whatever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx2
import pytest

from data_holder.answers import listed
from data_holder.links import OrchestratorLink
from data_holder.log_reader import LogReader
from data_holder.protocol.state import SessionState
from data_holder.succession import Predecessors
from shared.canonical import MAX_JSON_BYTES
from shared.crypto.tree_head import TreeHead
from shared.errors import Unavailable
from shared.service.http import Peers
from tests.data_holder.holder_world import ORCHESTRATOR, SESSION

NOTHING = cast(Any, None)
FOREIGN = {
    "a page": httpx2.Response(200, content=b"<html>back soon</html>"),
    "nothing": httpx2.Response(200),
    "a name twice": httpx2.Response(200, content=b'{"items": [], "items": []}'),
    "a number that is none": httpx2.Response(200, content=b'{"size": 1e999}'),
    "too much": httpx2.Response(200, content=b" " * MAX_JSON_BYTES + b"{}"),
}


def link_of(answer: httpx2.Response) -> OrchestratorLink:
    transport = httpx2.MockTransport(lambda _request: answer)
    return OrchestratorLink(Peers(transports={ORCHESTRATOR: transport}).peer(ORCHESTRATOR, "orchestrator"))


def log(link: OrchestratorLink) -> LogReader:
    return LogReader(link, SessionState(SESSION))


async def every(items: Any) -> None:
    async for _ in items:
        pytest.fail("an answer that is none has no items")


ASKING: dict[str, Callable[[OrchestratorLink], Awaitable[Any]]] = {
    "send": lambda link: link.send("POST", "/x", b"{}"),
    "a list": lambda link: every(listed(link, "/x", "malformed", 1)),
    "head": lambda link: log(link).head(NOTHING),
    "consistency": lambda link: log(link).consistency(1, 2),
    "a path": lambda link: log(link).path(0, 1),
    "paths": lambda link: log(link).paths(TreeHead(SESSION, 1, bytes(32), 0), "north"),
    "events": lambda link: every(log(link).events(1, bytes(32))),
    "predecessor": lambda link: Predecessors("north", NOTHING, NOTHING, NOTHING, link)._manifest(SESSION, NOTHING),
}


@pytest.mark.parametrize("answer", FOREIGN)
@pytest.mark.parametrize("asking", ASKING)
async def test_what_is_not_the_orchestrators_answer_is_nobodys_verdict(asking: str, answer: str) -> None:
    """A page of maintenance in front of it had given up last receipts, and refused a successor, for good."""
    with pytest.raises(Unavailable) as caught:
        await ASKING[asking](link_of(FOREIGN[answer]))
    assert caught.value.code == "peer-unintelligible"


async def test_an_answer_that_says_that_it_has_no_content_is_one() -> None:
    assert await link_of(httpx2.Response(204)).send("PUT", "/x", b"") is None
