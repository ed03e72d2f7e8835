"""Who fetched a model is written down, survives a restart, and a row that was changed or taken away is noticed."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, update

from orchestrator.sessions.fetches import FETCHED, WINDOW_S, Fetch, Fetches
from orchestrator.tables import MODEL_FETCHES
from shared.canonical import sha256
from shared.errors import VerificationFailed
from shared.names import Role
from shared.service.journal import Journal, NewFact
from shared.service.tables import JOURNAL
from shared.service.vocabulary import Vocabulary
from tests.orchestrator.orchestrator_samples import SESSION, Room

OTHER = "s_bbbbbbbbbbbbbbbb"


def fetches(room: Room, now: list[float] | None = None) -> Fetches:
    times = [1796.25] if now is None else now
    return Fetches(room.store, lambda session: (session * 2).encode(), lambda: times[0])


async def fetched(
    of: Fetches, session: str = SESSION, party: str = "alice", role: Role = Role.OWNER, asked: int = 4096
) -> None:
    key = sha256(party.encode()).hex()
    await of.record(session, party=party, role=role, fingerprint=key, sha256="e3" * 32, size=4096, asked=asked)


async def test_each_fetch_is_remembered_in_order_and_by_session(tmp_path: Path, database_url: str) -> None:
    room = Room(tmp_path, database_url)
    await room.catalogue()
    written = fetches(room)
    await fetched(written)
    await fetched(written, party="h0", role=Role.HOLDER)
    await fetched(written, OTHER)
    again = fetches(room)  # another process
    assert await again.of(SESSION) == [
        Fetch(1796.25, "alice", "owner", sha256(b"alice").hex(), "e3" * 32, 4096, 4096),
        Fetch(1796.25, "h0", "holder", sha256(b"h0").hex(), "e3" * 32, 4096, 4096),
    ]
    assert [await again.bytes_to_holders(session) for session in (SESSION, OTHER, "s_cccccccccccccccc")] == [4096, 0, 0]
    await room.store.close()


async def test_a_thousand_ranges_are_one_fetch_in_a_dozen_rows(tmp_path: Path) -> None:
    room, now = Room(tmp_path), [1000.0]
    await room.catalogue()
    written = fetches(room, now)
    for number in range(1000):
        now[0] = 1000.0 + number
        await fetched(written, party="h0", role=Role.HOLDER, asked=4)
    await fetched(written)
    assert [(one.party, one.at, one.requests, one.bytes) for one in await written.of(SESSION)] == [
        ("h0", 1000.0, 1000, 4000), ("alice", 1999.0, 1, 4096),
    ]  # fmt: skip
    rows = await room.store.read(lambda c: c.execute(select(func.count()).select_from(MODEL_FETCHES)).scalar())
    assert rows == 11, "the first, each doubling up to 512, and another's"
    again = fetches(room, now)  # what was not written down is what came since the last doubling
    assert [(one.requests, one.bytes) for one in await again.of(SESSION)] == [(512, 2048), (1, 4096)]
    now[0] = 1000.0 + WINDOW_S
    await fetched(written, party="h0", role=Role.HOLDER)
    assert [one.party for one in await written.of(SESSION)] == ["h0", "alice", "h0"]
    assert await written.bytes_to_holders(SESSION) == 4000 + 4096
    await room.store.close()


async def test_rows_of_the_first_version_are_each_of_the_whole(tmp_path: Path) -> None:
    room = Room(tmp_path)
    await room.catalogue()
    old = Journal(
        lambda session: hmac.digest((session * 2).encode(), b"gput/model-fetches/1", "sha256"),
        Vocabulary({FETCHED: 1}),
        MODEL_FETCHES,
    )
    body = {"party": "h0", "role": "holder", "fingerprint": "0f" * 32, "sha256": "e3" * 32, "size_bytes": 4096}
    facts = [NewFact(FETCHED, body)] * 2
    await room.store.write(lambda c: old.append(c, SESSION, facts, expected_seq=0, at=1.0))
    assert [(one.requests, one.bytes) for one in await fetches(room).of(SESSION)] == [(1, 4096)] * 2
    await room.store.close()


_first = (MODEL_FETCHES.c.stream == SESSION) & (MODEL_FETCHES.c.seq == 1)
_last = (MODEL_FETCHES.c.stream == SESSION) & (MODEL_FETCHES.c.seq == 3)
CHANGES = {
    "another party": update(MODEL_FETCHES).where(_first).values(body='{"party":"mallory"}'),
    "another time": update(MODEL_FETCHES).where(_first).values(at=1.0),
    "another session's": update(MODEL_FETCHES).where(_last).values(stream=OTHER),
    "taken away": delete(MODEL_FETCHES).where(_first),
    "cut off": delete(MODEL_FETCHES).where(_last),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_row_is_noticed(tmp_path: Path, change: str) -> None:
    room = Room(tmp_path)
    await room.catalogue()
    written = fetches(room)
    for party in ("alice", "h0", "h1"):
        await fetched(written, party=party)
    await room.store.write(lambda connection: connection.execute(CHANGES[change]))
    with pytest.raises(VerificationFailed) as refusal:
        await written.of(SESSION)
    assert refusal.value.code == "journal-tampered"
    await room.store.close()


@pytest.mark.parametrize("which", [_last, MODEL_FETCHES.c.stream == SESSION], ids=["the last", "all"])
async def test_rows_cut_off_at_the_end_are_not_written_over(tmp_path: Path, which: Any) -> None:
    """The next fetch in the same process began behind whatever was left, and what it wrote was the end from then on."""
    room = Room(tmp_path)
    await room.catalogue()
    written = fetches(room)
    for party in ("alice", "h0", "h1"):
        await fetched(written, party=party)
    await room.store.write(lambda connection: connection.execute(delete(MODEL_FETCHES).where(which)))
    for ask in (fetched(written, party="h2"), written.of(SESSION), written.bytes_to_holders(SESSION)):
        with pytest.raises(VerificationFailed) as refusal:
            await ask
        assert refusal.value.code == "journal-tampered"
    await room.store.close()


async def test_what_another_process_or_a_request_beside_it_wrote_is_no_tampering(tmp_path: Path) -> None:
    """A head that this process did not see, with the one that it saw on its chain."""
    room = Room(tmp_path)
    await room.catalogue()
    written, other = fetches(room), fetches(room)
    await fetched(written)
    await fetched(other, party="h0")
    await asyncio.gather(*(fetched(written, party=f"h{number}") for number in range(1, 9)))
    assert [one.party for one in await written.of(SESSION)] == ["alice", *(f"h{number}" for number in range(9))]
    await room.store.close()


async def test_rows_of_the_sessions_journal_are_no_fetches(tmp_path: Path) -> None:
    """The two are under different keys: what was written in one never verifies in the other."""
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue())
    written = Fetches(room.store, room.keyring.journal_key, lambda: 1796.25)
    assert await written.of(SESSION) == []
    moved = select(JOURNAL).where(JOURNAL.c.stream == SESSION)
    names = [column.name for column in MODEL_FETCHES.c]
    await room.store.write(lambda c: c.execute(insert(MODEL_FETCHES).from_select(names, moved)))
    with pytest.raises(VerificationFailed) as refusal:
        await written.of(SESSION)
    assert (refusal.value.code, book.head.seq) == ("journal-tampered", 1)
    await room.store.close()
