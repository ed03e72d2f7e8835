"""A holder's share: kept before it counts, sealed, never exchanged for another, and gone from a disk that was tampered with."""

from __future__ import annotations

import os

import pytest
from sqlalchemy import insert, select, text, update

from data_holder.recovery import ShareBook
from data_holder.tables.schema import REQUESTS, SHARES
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, Unavailable, VerificationFailed
from shared.service.migrations import downgrade, upgrade
from shared.service.store import Store

SESSION, OTHER = "s_aaaaaaaaaaaaaaaa", "s_bbbbbbbbbbbbbbbb"
SHARE, ANOTHER = Secret(b"\x01" * 33), Secret(b"\x02" * 33)
REQUEST = {
    "session": SESSION, "manifest_digest": "", "manifest": b"", "state": "approved", "reason": "", "delivered": True,
    "findings": "[]", "received_at": 1.0,
}  # fmt: skip


def book(store: Store, key: bytes = b"k" * 32) -> ShareBook:
    made = ShareBook(store, os.urandom)
    made.unlock(Secret(key))
    return made


async def test_it_is_kept_sealed_and_found_by_this_cvm_only(store: Store) -> None:
    await book(store).keep(SESSION, SHARE)
    assert await book(store).find(SESSION) == SHARE
    assert await book(store).find(OTHER) is None
    assert await book(store, b"another CVM's key 32 bytes long.").find(SESSION) is None
    sealed = await store.read(lambda c: c.execute(select(SHARES.c.sealed)).scalar_one())
    assert SHARE.reveal() not in bytes(sealed)


async def test_the_same_again_writes_nothing(store: Store) -> None:
    await book(store).keep(SESSION, SHARE)
    before = await store.read(lambda c: c.execute(select(SHARES.c.sealed)).scalar_one())
    await book(store).keep(SESSION, SHARE)
    assert await store.read(lambda c: c.execute(select(SHARES.c.sealed)).scalar_one()) == before


async def test_another_share_is_refused_by_name_and_the_first_is_kept(store: Store) -> None:
    await book(store).keep(SESSION, SHARE)
    with pytest.raises(VerificationFailed, match=SESSION) as caught:
        await book(store).keep(SESSION, ANOTHER)
    assert caught.value.code == "share-differs"
    assert await book(store).find(SESSION) == SHARE


async def test_a_row_that_does_not_open_is_replaced_by_the_next_dealing(store: Store) -> None:
    await book(store).keep(SESSION, SHARE)
    await book(store).keep(OTHER, ANOTHER)
    theirs = select(SHARES.c.sealed).where(SHARES.c.session == OTHER)
    foreign = await store.read(lambda c: c.execute(theirs).scalar_one())
    await store.write(lambda c: c.execute(update(SHARES).where(SHARES.c.session == SESSION).values(sealed=foreign)))
    assert await book(store).find(SESSION) is None, "another session's row is nobody's share here"
    await book(store).keep(SESSION, SHARE)
    assert await book(store).find(SESSION) == SHARE


async def test_without_its_key_nothing_is_kept(store: Store) -> None:
    with pytest.raises(Unavailable):
        await ShareBook(store, os.urandom).keep(SESSION, SHARE)


async def test_going_back_does_not_lose_a_live_sessions_share(store: Store) -> None:
    await store.write(lambda c: c.execute(insert(REQUESTS).values(REQUEST)))
    await book(store).keep(SESSION, SHARE)
    with pytest.raises(ConfigurationError, match="not ended") as caught:
        downgrade(store.url, "data_holder", "0003")
    assert caught.value.code == "downgrade-loses"
    await store.write(lambda c: c.execute(text("UPDATE holder_requests SET state = 'ended'")))
    downgrade(store.url, "data_holder", "0003")
    upgrade(store.url, "data_holder")
    assert await book(store).find(SESSION) is None
