"""Who makes room where many connections begin at once: each of them one that was not told to go yet."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from shared.service import connection
from shared.service.crowd import Crowd
from tests.service.bulk_server import all_of, each_loop, run, serving

LIMIT, COME = 8, 40


@each_loop
def test_as_many_go_as_are_too_many_although_all_came_before_the_first_was_gone(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one was told to go each time until it was gone, and its server kept nearly all who came."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", LIMIT)

    async def act() -> None:
        async with serving(all_of) as server:
            with ExitStack() as stack:
                # In one turn of the loop: none of them is seen before all are there.
                strangers = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(COME)
                ]
                newest = {stranger.getsockname()[1] for stranger in strangers[-LIMIT:]}
                for _ in range(3000):  # less than a connection may wait without a request
                    kept = {each.client[1] for each in server.connections}
                    if kept == newest:
                        break
                    await asyncio.sleep(0.005)
                assert kept == newest

    run(loop, act())


class Connection:
    """One of an address."""

    def __init__(self, address: str) -> None:
        self.address = address


@pytest.mark.parametrize("at", ["waiting", "sending", "answering"])
def test_who_was_told_to_go_is_not_told_again(at: str) -> None:
    crowd = Crowd[Connection](LIMIT)
    there = [Connection("greedy") for _ in range(LIMIT)]
    there_now: Any = getattr(crowd, at)
    there_now.update(dict.fromkeys(there))
    gone = []
    for _ in range(3):
        newcomer = Connection("other")
        crowd.waiting[newcomer] = None
        gone.append(crowd.one_too_many(newcomer))
        crowd.leaves(newcomer)
    assert gone == there[:3]
    assert list(there_now) == there[3:]
