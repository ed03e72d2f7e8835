"""What watchers are told of a session is what was written: a row that somebody changed is told to nobody, and refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from orchestrator.api.deps import parts_of
from orchestrator.sessions import telling
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.telling import Telling
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact
from shared.service.journal import EMPTY, Fact, Head, Journal
from tests.orchestrator.orchestrator_samples import SESSION, Room
from tests.orchestrator.orchestrator_world import World, prepared, submit

DAMAGE = {
    "a body that is none": "body = 'abc'", "a body of bytes": "body = x'ff'", "no text": "body = CAST(x'7bff7d' AS TEXT)",
    "another time": "at = at + 1", "a time of bytes": "at = x'ff'", "a time that never comes": "at = 9e999",
    "a kind of bytes": "kind = x'ff'", "a kind that there is not": "kind = 'abc'", "a false end": "kind = 'session.failed'",
    "another body": """body = '{"by": "owner", "code": "refused"}'""", "another chain": "chain = x'00'", "another place": "seq = 9",
}  # fmt: skip


async def _write(world: World, *statements: str) -> None:
    def act(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    await parts_of(world.app).store.write(act)


@pytest.mark.parametrize("which", DAMAGE)
async def test_a_changed_row_is_told_to_nobody(world: World, which: str) -> None:
    """It was told, with status 200; or it made a traceback, after the answer had begun where the session went on."""
    owner = await prepared(world)
    goes_on, ended = [(await submit(owner, act)).json()["id"] for act in ("one", "two")]
    assert (await owner.post(f"/v1/sessions/{ended}/cancel")).status_code == 202
    for session in (goes_on, ended):
        await _write(world, f"UPDATE journal SET {DAMAGE[which]} WHERE seq = 1 AND stream = '{session}'")
        async with asyncio.timeout(60):  # what is told of one that goes on has no end
            refused = await owner.get(f"/v1/sessions/{session}/events")
        assert (refused.status_code, refused.json()["code"]) == (403, "journal-tampered"), refused.text
        assert session in refused.json()["detail"]


async def test_a_row_that_is_changed_as_it_comes_ends_the_stream_before_it(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    later = "UPDATE journal SET kind = 'session.failed' WHERE stream = NEW.stream AND seq = NEW.seq"
    await _write(world, f"CREATE TRIGGER liar AFTER INSERT ON journal BEGIN {later}; END")
    stream = asyncio.ensure_future(owner.get(f"/v1/sessions/{session}/events"))
    changes = parts_of(world.app).catalogue.changes(session)
    async with asyncio.timeout(60):
        while not changes._waiters:  # noqa: ASYNC110  # no event is given for it
            await asyncio.sleep(0)
        assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202
        told = (await stream).text
        again = await owner.get(f"/v1/sessions/{session}/events")
    assert ('"fact":"submitted"' in told, told.count("data:")) == (True, 1)
    assert (again.status_code, again.json()["code"]) == (403, "journal-tampered")


class Counted(Journal):
    """Notes of which fact it verified each time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.looked = list[int]()

    def verified(
        self, connection: Connection, stream: str, after: Head = EMPTY, last: int | None = None
    ) -> Iterator[tuple[Fact, Head]]:
        for fact, head in super().verified(connection, stream, after, last):
            self.looked.append(fact.seq)
            yield fact, head


async def test_who_comes_back_has_little_verified_again(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "MARK_EVERY", 4)
    room, journal = Room(tmp_path, database_url), Counted(lambda stream: bytes(32))
    await room.catalogue()
    facts = [new_fact(SessionFact.PAUSE_ASKED, number=number) for number in range(1, 11)]
    await room.store.write(lambda c: journal.append(c, SESSION, facts, expected_seq=0, at=1.0))
    told = Telling(SESSION, EMPTY, store=room.store, journal=journal)

    async def heard(
        after: int, last: int = 10, limit: int = 20, known: Head = EMPTY
    ) -> tuple[list[int], list[int], Head]:
        journal.looked.clear()
        found, head = await told.after(after, last, limit, known)
        assert [fact.body["number"] for fact in found] == [fact.seq for fact in found]
        return [fact.seq for fact in found], [*journal.looked], head

    assert (await heard(6, last=7))[:2] == ([7], [1, 2, 3, 4, 5, 6, 7])
    said, looked, head = await heard(6, limit=2)
    assert (said, looked, head.seq) == ([7, 8], [5, 6, 7, 8], 8)
    assert (await heard(8, known=head))[:2] == ([9, 10], [9, 10]), "who hears on has nothing verified twice"
    assert (await heard(9, known=head))[:2] == ([10], [9, 10])
    assert (await heard(0, last=2))[:2] == ([1, 2], [1, 2])
    assert await heard(10, known=head) == ([], [], head)
    for last in (11, 12):
        with pytest.raises(VerificationFailed) as refusal:  # what is known to be durable is not there
            await heard(9, last=last)
        assert (refusal.value.code, "fact 11: the row is missing" in refusal.value.detail) == ("journal-tampered", True)
    await room.store.close()
