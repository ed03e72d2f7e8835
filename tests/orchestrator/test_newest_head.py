"""Where an ended session's log stood is read from a row of the platform's, and held against the journal before anybody goes on from it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, delete, update

from orchestrator.ledger.log import event_leaf, head_row, receipt_leaf, sign_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions import heritage
from orchestrator.sessions.heritage import Heritage
from orchestrator.tables import HEADS, LEAVES
from shared.canonical import cbor_bytes
from shared.errors import VerificationFailed
from tests.orchestrator.orchestrator_samples import SESSION, Room, key

EVENTS_AFTER = 3


class Log:
    """Of a session that has ended: an event, two visits' receipts, then what happened to it while nobody signed heads."""

    def __init__(self, room: Room) -> None:
        self.room, self.tree, self.sizes = room, MerkleTree(), list[int]()
        self.state: Any = SimpleNamespace(id=SESSION, ended=True, tree=self.tree, offered_heads={"h0": 1, "h1": 2})
        unasked: Any = None
        self.heritage = Heritage(room.store, unasked, unasked, lambda session: room.folder, os.urandom)

    async def write(self, act: Callable[[Connection], Any]) -> None:
        await self.room.store.write(act)

    async def event(self, kind: str) -> None:
        leaf = event_leaf(self.tree, SESSION, kind, {"visit": None})
        self.tree.append(bytes.fromhex(leaf.fact["hash"]))
        await self.write(leaf.row)

    async def receipt(self, number: int) -> None:
        cose = cbor_bytes([b"", {}, bytes([number]), b""])
        leaf = receipt_leaf(self.tree, SESSION, cose, visit=f"v_{number}", holder="h0", outcome="closed")
        self.tree.append(bytes.fromhex(leaf.fact["hash"]))
        await self.write(leaf.row)

    async def signed(self, size: int | None = None) -> None:
        """The head of that many leaves is the stored one."""
        tree = MerkleTree()
        for index in range(self.tree.size if size is None else size):
            tree.append(self.tree.leaf(index))
        await self.write(head_row(sign_head(tree, SESSION, key(98), 1.0)))

    async def said(self) -> int:
        await self.heritage.offered(self.state)
        return self.sizes.pop()


@pytest.fixture
async def log(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Log]:
    room = Room(tmp_path, database_url)
    await room.store.open()
    made = Log(room)
    monkeypatch.setattr(heritage, "at_rest", lambda state, size, sealed: made.sizes.append(size))
    await made.event("placed")
    for number in range(2):
        await made.receipt(number)
    await made.signed()
    for number in range(EVENTS_AFTER):
        await made.event(f"restarted {number}")
    yield made
    await room.store.close()


async def refused(log: Log) -> str:
    with pytest.raises(VerificationFailed) as refusal:
        await log.heritage.offered(log.state)
    assert log.sizes == []
    return refusal.value.code


async def test_the_newest_signed_head_is_gone_on_from(log: Log) -> None:
    assert await log.said() == 3
    await log.signed()
    assert await log.said() == 3 + EVENTS_AFTER
    await log.write(lambda c: c.execute(delete(HEADS)))
    assert await log.said() == 0
    log.state.ended = False
    await log.signed(1)
    assert await log.said() == 0, "what goes on is refused for that"


@pytest.mark.parametrize("size", [0, 1, 2])
async def test_an_older_head_put_back_is_noticed(log: Log, size: int) -> None:
    """A receipt came after it, whatever was shown to holders since."""
    log.state.offered_heads = {}
    await log.signed(size)
    assert await refused(log) == "log-rolled-back"


async def test_a_head_that_is_older_than_what_a_holder_was_shown_is_noticed(log: Log) -> None:
    await log.signed()
    log.state.offered_heads["h2"] = 5
    await log.signed(4)
    assert await refused(log) == "log-rolled-back"
    await log.signed(5)
    assert await log.said() == 5


HEADS_CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "another root": ({"root": "0" * 64}, "log-mismatch"),
    "a longer log": ({"size": 9}, "log-mismatch"),
    "less than nothing": ({"size": -1}, "log-mismatch"),
}


@pytest.mark.parametrize("which", HEADS_CHANGED)
async def test_a_head_of_another_log_is_noticed(log: Log, which: str) -> None:
    values, code = HEADS_CHANGED[which]
    await log.write(lambda c: c.execute(update(HEADS).values(values)))
    assert await refused(log) == code


_after = (LEAVES.c.session == SESSION) & (LEAVES.c.idx == 4)
LEAVES_CHANGED = {
    "taken away": delete(LEAVES).where(_after),
    "another event": update(LEAVES).where(_after).values(leaf=cbor_bytes(["gput/log-event/1", SESSION, "other", {}])),
    "moved": update(LEAVES).where(_after).values(idx=7),
}


@pytest.mark.parametrize("which", LEAVES_CHANGED)
async def test_what_came_after_the_head_is_believed_by_the_journal_alone(log: Log, which: str) -> None:
    """A receipt among it could be passed off as something else."""
    await log.write(lambda c: c.execute(LEAVES_CHANGED[which]))
    assert await refused(log) == "log-rolled-back"


@pytest.mark.parametrize("column", ["size", "root", "leaf"])
async def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, log: Log, column: str) -> None:
    if log.room.store.dialect != "sqlite":
        pytest.skip("a column's type is kept there")
    table = "log_leaves" if column == "leaf" else "tree_heads"
    await log.write(lambda c: c.exec_driver_sql(f"UPDATE {table} SET {column} = 'abc'"))
    assert await refused(log) in ("journal-tampered", "log-mismatch")
