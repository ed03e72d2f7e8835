"""A session's key at rest: what becomes of the journal when the platform, whose disk it is, deletes, swaps or changes the row."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, text, update

from orchestrator.gpu_session.sealed import SealedSecrets, SessionSecrets
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.keyring import KeyAway, read_dealt, sharing_plan
from orchestrator.tables import SESSION_KEYS
from shared.crypto.secret import Secret
from shared.crypto.sharing import combine, share_digest
from shared.errors import ConfigurationError, NotFound, VerificationFailed
from shared.service.migrations import downgrade, upgrade
from tests.adversary.rows import attack
from tests.orchestrator.orchestrator_samples import CVM, SESSION, Room, keyring, manifest, no_own_keys

OTHER, ANOTHER_CVM = "s_bbbbbbbbbbbbbbbb", b"another CVM"


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    await room.submitted(catalogue)
    await room.submitted(catalogue, OTHER)
    yield room
    await room.store.close()


async def sealed(room: Room, session: str = SESSION) -> bytes:
    query = select(SESSION_KEYS.c.sealed).where(SESSION_KEYS.c.session == session)
    return bytes(await room.store.read(lambda c: c.execute(query).scalar_one()))


async def change(room: Room, **values: Any) -> None:
    await room.store.write(lambda c: c.execute(update(SESSION_KEYS).where(SESSION_KEYS.c.session == SESSION).values(values)))  # fmt: skip


async def refused(catalogue: Catalogue, session: str = SESSION) -> str:
    with pytest.raises((VerificationFailed, KeyAway)) as caught:
        await catalogue.open(session)
    return caught.value.code


async def test_a_restart_of_the_same_cvm_opens_everything(room: Room) -> None:
    again = await room.catalogue()
    assert [book.state.id for book in await again.live()] == [SESSION, OTHER]
    assert len({room.keyring.journal_key(session) for session in (SESSION, OTHER)}) == 2


async def test_each_key_is_one_of_its_own(room: Room) -> None:
    made = room.keyring
    keys = [made.sealing_key(session).reveal() for session in (SESSION, OTHER)]
    assert len({*keys, made.journal_key(SESSION), made.journal_key(OTHER)}) == 4
    assert keys[0] not in await sealed(room)


async def test_another_cvm_is_told_to_wait_and_not_that_anybody_lied(room: Room) -> None:
    again = await room.catalogue(ANOTHER_CVM)
    assert await refused(again) == "session-key-away"
    assert await again.live() == []


@attack("V22", any="stopped: a chain begun under a session's own key verifies under no other")
async def test_a_deleted_key_row_selects_no_other_key(room: Room) -> None:
    """Neither for this CVM, whose own key sessions of older schemas are under, nor for any other."""
    await room.store.write(lambda c: c.execute(delete(SESSION_KEYS).where(SESSION_KEYS.c.session == SESSION)))
    for cvm in (CVM, ANOTHER_CVM):
        assert await refused(await room.catalogue(cvm)) == "journal-tampered"


@attack("V22", any="stopped: a sealed key names its session")
async def test_a_swapped_key_row_gives_no_key(room: Room) -> None:
    await change(room, sealed=await sealed(room, OTHER))
    again = await room.catalogue()
    assert await refused(again) == "session-key-away"
    assert [book.state.id for book in await again.live()] == [OTHER]


@pytest.mark.parametrize("junk", [b"", b"\x00" * 16, b"\x01" * 64])
async def test_a_changed_key_row_gives_no_key(room: Room, junk: bytes) -> None:
    await change(room, sealed=junk)
    assert await refused(await room.catalogue()) == "session-key-away"


async def test_a_row_for_a_session_that_has_no_key_of_its_own_gives_none(tmp_path: Path) -> None:
    """A session of an older schema, to which the platform adds the row of another one."""
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    with no_own_keys():
        await room.submitted(catalogue)
    assert (await (await room.catalogue()).open(SESSION)).state.id == SESSION
    await room.submitted(await room.catalogue(), OTHER)
    foreign = await sealed(room, OTHER)
    row = {"session": SESSION, "sealed": foreign, "key_check": bytes(32), "digests": {}}
    await room.store.write(lambda c: c.execute(SESSION_KEYS.insert().values(row)))
    assert await refused(await room.catalogue()) == "session-key-away"
    await room.store.close()


async def test_a_submission_that_fails_leaves_no_key(room: Room) -> None:
    third = "s_cccccccccccccccc"
    await room.store.write(
        lambda c: c.execute(text(f"INSERT INTO journal VALUES ('{third}', 1, 'x', 1.0, '{{}}', x'00')"))
    )
    with pytest.raises(Exception, match="moved on"):
        await room.submitted(await room.catalogue(), third)
    assert await room.store.read(lambda c: read_dealt(c, third)) is None
    with pytest.raises(NotFound):
        await (await room.catalogue()).open(third)


async def test_shares_give_the_key_back_to_another_cvm(room: Room) -> None:
    agreed, mine = manifest(), room.keyring
    plan = sharing_plan(SESSION, agreed)
    shares = {holder: share for holder in plan.holders if (share := mine.share(SESSION, agreed, holder)) is not None}
    dealt = await room.store.read(lambda c: read_dealt(c, SESSION))
    assert dealt is not None
    assert dealt.digests == {holder: share_digest(plan, holder, share).hex() for holder, share in shares.items()}
    recovered = combine(shares, plan)
    await room.store.write(keyring(ANOTHER_CVM).resealing(SESSION, recovered))
    again = await room.catalogue(ANOTHER_CVM)
    assert (await again.open(SESSION)).state.manifest == agreed
    assert room.keyring.sealing_key(SESSION) == mine.sealing_key(SESSION)
    assert await refused(await room.catalogue()) == "session-key-away", "it is the other CVM's now"


async def test_a_wrong_key_in_its_place_opens_no_journal(room: Room) -> None:
    await room.store.write(keyring(ANOTHER_CVM).resealing(SESSION, Secret(b"w" * 32)))
    assert await refused(await room.catalogue(ANOTHER_CVM)) == "journal-tampered"


async def test_secrets_go_with_the_sessions_key(room: Room) -> None:
    secrets = SessionSecrets(Secret(b"r" * 32), Secret(b"c" * 32))
    mine = SealedSecrets(room.store, room.keyring.sealing_key(SESSION), SESSION, os.urandom)
    await room.store.write(mine.saving(secrets))
    assert await mine.load() == secrets
    with pytest.raises(VerificationFailed):
        await SealedSecrets(room.store, room.keyring.sealing_key(OTHER), SESSION, os.urandom).load()


async def test_going_back_to_a_schema_without_keys_is_refused_while_a_session_has_one(room: Room) -> None:
    await room.store.close()
    with pytest.raises(ConfigurationError, match="keys of sessions") as caught:
        downgrade(room.url, "orchestrator", "0005")
    assert caught.value.code == "downgrade-loses"
    await room.store.open()
    await room.store.write(lambda c: c.execute(text("DELETE FROM sessions")))
    await room.store.close()
    downgrade(room.url, "orchestrator", "0005")
    upgrade(room.url, "orchestrator")
    await room.store.open()
