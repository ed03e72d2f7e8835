"""Collecting shares: k - 1 say nothing, a liar is named, a repeat is nobody's, and no row of the platform's makes a wrong key pass."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text, update

from orchestrator.holders.inbox import Inboxes
from orchestrator.runner import key_recovery
from orchestrator.runner.key_recovery import KeyRecovery
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.keyring import KeyAway, sharing_plan
from orchestrator.tables import SESSION_KEYS
from shared.attestation.recovery import give_share
from shared.canonical import json_value
from shared.claims.manifest import Manifest
from shared.crypto.secret import Secret
from shared.crypto.sharing import deal
from shared.errors import Conflict, GputError, Unavailable, VerificationFailed
from shared.service.changes import Stopping
from shared.wire.recovery import GivenShare, ShareOffer, ShareRefusal, ShareRequest
from shared.wire.visit import Evidence
from tests.orchestrator.orchestrator_samples import SESSION, Room, key, manifest

OTHER, ANOTHER_CVM, MEASUREMENT = "s_bbbbbbbbbbbbbbbb", b"another CVM", "3c" * 48


class Guest:
    """Quotes nothing: whether holders believe it is theirs to test."""

    async def record(self, kind: str, content: Any) -> None:
        """Nothing is measured."""

    async def quote(self, report_data: bytes, about: str | None = None) -> Evidence:
        return Evidence(quote=base64.b64encode(report_data).decode())


class Scene:
    """A session of three holders whose key is another CVM's."""

    def __init__(self, room: Room, agreed: Manifest) -> None:
        self.room, self.manifest = room, agreed
        self.shares = {f"h{n}": room.keyring.share(SESSION, agreed, f"h{n}") for n in range(3)}
        self.inboxes = Inboxes(lambda: 1.0, Stopping())
        self.catalogue: Catalogue

    async def recovery(self) -> KeyRecovery:
        self.catalogue = await self.room.catalogue(ANOTHER_CVM)
        assert await self.catalogue.live() == []
        house: Any = SimpleNamespace(
            catalogue=self.catalogue, store=self.room.store, keyring=self.room.keyring, inboxes=self.inboxes, guest=Guest(),
            identity=key(77), entropy=os.urandom, clock=lambda: 2.0,
        )  # fmt: skip
        return await KeyRecovery.of(house, SESSION)

    async def given(
        self, recovery: KeyRecovery, holder: str, share: Secret | None = None
    ) -> tuple[ShareOffer, GivenShare]:
        offer = await recovery.offer(holder, public(holder), ShareRequest(nonce="0a" * 32))
        sealed = sealed_to(offer, share or self.shares[holder] or Secret(b""))
        return offer, GivenShare(sealed=base64.b64encode(sealed).decode(), measurement=MEASUREMENT)

    async def give(self, recovery: KeyRecovery, *holders: str, share: Secret | None = None) -> None:
        for holder in holders:
            offer, given = await self.given(recovery, holder, share)
            recovery.take(holder, public(holder), offer.offer, given)

    async def still_away(self) -> None:
        with pytest.raises(KeyAway):
            await self.catalogue.open(SESSION)


def sealed_to(offer: ShareOffer, share: Secret) -> bytes:
    """As `give_share`, by a holder that verifies nothing."""
    seen: Any = SimpleNamespace(runtime_data=base64.b64decode(offer.runtime_data))
    seen.runtime = SimpleNamespace(key=json_value(seen.runtime_data)["key"])
    return give_share(share, seen)


def public(holder: str) -> bytes:
    return key(int(holder[1:]) + 1).public


def code(error: pytest.ExceptionInfo[GputError]) -> str:
    return error.value.code


async def turns() -> None:
    """Everybody else has had several."""
    for _ in range(20):
        await asyncio.sleep(0)


async def made(folder: Path, **changes: Any) -> Scene:
    room, agreed = Room(folder), manifest(**changes)
    catalogue = await room.catalogue()
    await room.submitted(catalogue, **changes)
    await room.submitted(catalogue, OTHER)
    return Scene(room, agreed)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = await made(tmp_path)
    yield scene
    await scene.room.store.close()


async def test_all_shares_give_the_session_back_and_it_stays(scene: Scene) -> None:
    recovery = await scene.recovery()
    assert recovery.waits() == ["its holders' shares: h0, h1, h2"]
    await scene.give(recovery, "h2", "h0", "h1")
    assert await recovery.drive()
    book = await scene.catalogue.open(SESSION)
    assert (book.state.seq, book.state.tree.size) == (2, 1)
    facts = await scene.room.store.read(lambda c: scene.room.journal().load(c, SESSION))
    assert [giver["holder"] for giver in facts[-1].body["shares"]] == ["h2", "h0", "h1"]
    assert {giver["measurement"] for giver in facts[-1].body["shares"]} == {MEASUREMENT}
    again = await scene.room.catalogue(ANOTHER_CVM)
    assert SESSION in [book.state.id for book in await again.live()]


async def test_one_too_few_say_nothing_and_everybody_missing_is_asked_once(scene: Scene) -> None:
    recovery = await scene.recovery()
    driving = asyncio.create_task(recovery.drive())
    for holders in (("h0",), ("h2",), ()):
        await turns()
        await scene.give(recovery, *holders)
    assert (recovery.waits(), driving.done()) == (["its holders' shares: h1"], False)
    await scene.still_away()
    for holder in ("h0", "h1", "h2"):
        assert [item.kind for item in scene.inboxes._box(holder).items] == ["share_wanted"]
    await scene.give(recovery, "h1")
    assert await driving


async def test_k_of_n_needs_any_k(tmp_path: Path) -> None:
    scene = await made(tmp_path, recovery_shares=2)
    recovery = await scene.recovery()
    assert recovery.waits() == ["its holders' shares: 2 of h0, h1, h2"]
    recovery.refuse("h1", public("h1"), ShareRefusal(code="vetoed", detail="no more"))
    await scene.give(recovery, "h2")
    assert recovery.waits() == ["its holders' shares: h0", "h1 (share refused: vetoed: no more)"]
    await scene.give(recovery, "h0")
    assert await recovery.drive()
    await scene.room.store.close()


async def test_a_refusal_is_taken_in_characters_that_can_be_seen(scene: Scene) -> None:
    """It stands on the session's page, and on its owner's terminal."""
    recovery = await scene.recovery()
    recovery.refuse("h1", public("h1"), ShareRefusal(code="vetoed", detail="no\u202emore\x1b[2J"))
    assert recovery.waits()[-1] == "h1 (share refused: vetoed: no?more?[2J)"


@pytest.mark.parametrize("digest", [7, None, "\u00e4", "\ud800"])
async def test_a_digest_that_is_none_makes_a_share_wrong(scene: Scene, digest: Any) -> None:
    changed = update(SESSION_KEYS).where(SESSION_KEYS.c.session == SESSION).values(digests={"h0": digest})
    await scene.room.store.write(lambda c: c.execute(changed))
    recovery = await scene.recovery()
    with pytest.raises(VerificationFailed) as refusal:
        await scene.give(recovery, "h0")
    assert code(refusal) == "share-wrong"


async def test_a_liar_is_named_and_may_think_better_of_it(scene: Scene) -> None:
    recovery = await scene.recovery()
    await scene.give(recovery, "h0", "h1")
    others = deal(Secret(b"x" * 32), sharing_plan(SESSION, scene.manifest))["h2"]
    for wrong in (others, scene.shares["h0"], Secret(b"\xff" * 33)):
        offer, given = await scene.given(recovery, "h2", wrong)
        with pytest.raises(VerificationFailed) as caught:
            recovery.take("h2", public("h2"), offer.offer, given)
        assert code(caught) == "share-wrong"
    assert recovery.waits() == ["h2 (share refused: share-wrong: h2 gave a share that is not the one it was dealt)"]
    await scene.give(recovery, "h2")
    assert await recovery.drive()


async def test_a_release_opens_once_and_for_its_own_offer(scene: Scene) -> None:
    recovery = await scene.recovery()
    first, given = await scene.given(recovery, "h0")
    second, _ = await scene.given(recovery, "h0")
    with pytest.raises(Conflict) as stale:
        recovery.take("h0", public("h0"), first.offer, given)
    assert code(stale) == "offer-unknown"
    with pytest.raises(VerificationFailed) as replayed:
        recovery.take("h0", public("h0"), second.offer, given)
    assert code(replayed) == "hpke-open"
    with pytest.raises(Conflict) as spent:
        recovery.take("h0", public("h0"), second.offer, given)
    assert code(spent) == "offer-unknown"
    offer, again = await scene.given(recovery, "h0")
    with pytest.raises(Conflict):  # another holder's offer
        recovery.take("h1", public("h1"), offer.offer, again)
    recovery.take("h0", public("h0"), offer.offer, again)
    with pytest.raises(Conflict) as enough:
        await recovery.offer("h0", public("h0"), ShareRequest(nonce="0a" * 32))
    assert code(enough) == "share-not-wanted"


async def test_nobody_else_speaks_for_a_holder(scene: Scene) -> None:
    recovery = await scene.recovery()
    offer, given = await scene.given(recovery, "h0")
    refusal = ShareRefusal(code="no-share", detail="")
    for holder in ("h0", "h7"):
        with pytest.raises(GputError):
            await recovery.offer(holder, public("h1"), ShareRequest(nonce="0a" * 32))
        with pytest.raises(GputError):
            recovery.take(holder, public("h1"), offer.offer, given)
        with pytest.raises(GputError):
            recovery.refuse(holder, public("h1"), refusal)
    assert recovery.waits() == ["its holders' shares: h0, h1, h2"]


@pytest.mark.parametrize("column", ["key_check", "digests"])
async def test_what_the_platform_changes_beside_the_key_makes_no_wrong_one_pass(scene: Scene, column: str) -> None:
    values: dict[str, Any] = {"key_check": os.urandom(32)} if column == "key_check" else {"digests": {}}
    await scene.room.store.write(lambda c: c.execute(update(SESSION_KEYS).values(values)))
    recovery = await scene.recovery()
    if column == "digests":
        with pytest.raises(VerificationFailed, match="not the one it was dealt"):
            await scene.give(recovery, "h0")
    else:
        await scene.give(recovery, "h0", "h1", "h2")
        assert not await recovery.drive()
        assert "shares-do-not-fit" in recovery.waits()[0]
    await scene.still_away()


async def test_a_key_that_the_whole_row_was_made_for_reads_no_journal(scene: Scene) -> None:
    """The platform and all holders together put another key in the place of the session's."""
    plan, invented = sharing_plan(SESSION, scene.manifest), Secret(b"i" * 32)
    shares = deal(invented, plan)
    digests = {h: key_recovery.share_digest(plan, h, share).hex() for h, share in shares.items()}
    check = key_recovery.session_key_check(invented.reveal(), SESSION)
    await scene.room.store.write(lambda c: c.execute(update(SESSION_KEYS).values(digests=digests, key_check=check)))
    recovery = await scene.recovery()
    for holder, share in shares.items():
        await scene.give(recovery, holder, share=share)
    assert not await recovery.drive()
    assert "journal-tampered" in recovery.waits()[0]
    await scene.still_away()


async def test_a_journal_that_was_changed_meanwhile_is_said_to_be(scene: Scene) -> None:
    await scene.room.store.write(lambda c: c.execute(text("UPDATE journal SET at = at + 1")))
    recovery = await scene.recovery()
    await scene.give(recovery, "h0", "h1", "h2")
    assert not await recovery.drive()
    assert "journal-tampered" in recovery.waits()[0]


async def test_a_manifest_that_its_owner_did_not_sign_asks_for_nothing(scene: Scene) -> None:
    other = manifest(rounds=4).canonical()
    await scene.room.store.write(lambda c: c.execute(text("UPDATE sessions SET manifest = :m"), {"m": other}))
    with pytest.raises(VerificationFailed):
        await scene.recovery()


async def test_an_answer_to_the_commit_that_is_lost_is_no_second_fact(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovery, enqueue, lost = await scene.recovery(), scene.room.store.enqueue, []

    async def losing(act: Any) -> Any:
        done = await enqueue(act)
        if not lost:
            lost.append(True)
            raise Unavailable("the answer was lost")
        return done

    monkeypatch.setattr(scene.room.store, "enqueue", lambda act: asyncio.ensure_future(losing(act)))
    monkeypatch.setattr(key_recovery, "ASK_AGAIN_S", 0.01)
    await scene.give(recovery, "h0", "h1", "h2")
    assert await recovery.drive()
    assert (lost, (await scene.catalogue.open(SESSION)).state.seq) == ([True], 2)
