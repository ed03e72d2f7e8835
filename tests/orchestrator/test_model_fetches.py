"""Who fetched a model is written down, survives a restart, and a row that was changed or taken away is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select, update

from orchestrator.sessions.fetches import Fetch, Fetches
from orchestrator.tables import MODEL_FETCHES
from shared.errors import VerificationFailed
from shared.names import Role
from shared.service.tables import JOURNAL
from tests.orchestrator.orchestrator_samples import SESSION, Room

OTHER = "s_bbbbbbbbbbbbbbbb"


def fetches(room: Room) -> Fetches:
    return Fetches(room.store, lambda session: (session * 2).encode(), lambda: 1796.25)


async def fetched(of: Fetches, session: str = SESSION, party: str = "alice", role: Role = Role.OWNER) -> None:
    await of.record(session, party=party, role=role, fingerprint="0f" * 32, sha256="e3" * 32, size=4096)


async def test_each_fetch_is_remembered_in_order_and_by_session(tmp_path: Path, database_url: str) -> None:
    room = Room(tmp_path, database_url)
    await room.catalogue()
    written = fetches(room)
    await fetched(written)
    await fetched(written, party="h0", role=Role.HOLDER)
    await fetched(written, OTHER)
    again = fetches(room)  # another process
    assert await again.of(SESSION) == [
        Fetch(1796.25, "alice", "owner", "0f" * 32, "e3" * 32, 4096),
        Fetch(1796.25, "h0", "holder", "0f" * 32, "e3" * 32, 4096),
    ]
    assert [await again.bytes_to_holders(session) for session in (SESSION, OTHER, "s_cccccccccccccccc")] == [4096, 0, 0]
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
    for _ in range(3):
        await fetched(written)
    await room.store.write(lambda connection: connection.execute(CHANGES[change]))
    with pytest.raises(VerificationFailed) as refusal:
        await written.of(SESSION)
    assert refusal.value.code == "journal-tampered"
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
