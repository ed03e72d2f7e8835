"""A zoo of wrong offers, one fault each: the holder writes nothing, and says why where the offer is authentic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shared.canonical import sha256
from shared.claims.visit import CursorRange
from shared.crypto.hpke import OneTimeKey
from shared.crypto.signing import PartyKey
from shared.wire.visit import OfferDocument, VisitOffer
from tests.adversary.rows import attack
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION, visit_key

Make = Callable[[Running], tuple[VisitOffer, OfferDocument]]


def offer(running: Running, **changes: Any) -> tuple[VisitOffer, OfferDocument]:
    epoch = running.holder.ledger.state(SESSION).highest_epoch + 1
    return running.orchestrator.make_offer(visit_key(), epoch=epoch, visit=f"v_{epoch:016d}", **changes)


def grant(**fields: Any) -> Make:
    return lambda running: offer(running, grant=fields)


def document(**fields: Any) -> Make:
    return lambda running: offer(running, document=fields)


def forged(running: Running) -> tuple[VisitOffer, OfferDocument]:
    made, doc = offer(running)
    flipped = made.signature[:-4] + ("AAA=" if made.signature[-4:] != "AAA=" else "BBA=")
    return made.model_copy(update={"signature": flipped}), doc


def other_sealed(running: Running) -> tuple[VisitOffer, OfferDocument]:
    one, doc = offer(running)
    other, _ = offer(running)
    return one.model_copy(update={"sealed": other.sealed}), doc


def edited(running: Running) -> tuple[VisitOffer, OfferDocument]:
    """The platform rewrites the agent's address inside an otherwise genuine offer."""
    import base64

    made, doc = offer(running)
    raw = base64.b64decode(made.document).replace(b"agent.test", b"agent.evil")
    return made.model_copy(update={"document": base64.b64encode(raw).decode()}), doc


def expired(running: Running) -> tuple[VisitOffer, OfferDocument]:
    return offer(running, grant={"expires_at": int(running.clock()) - 1})


def long_lease(running: Running) -> tuple[VisitOffer, OfferDocument]:
    return offer(running, grant={"expires_at": int(running.clock()) + 10_000})


def wrong_log_signature(running: Running) -> tuple[VisitOffer, OfferDocument]:
    made = offer(running)[1]
    return offer(running, document={"log_signature": "A" * 86 + "==", "log_size": made.log_size})


def cursor(**fields: Any) -> Make:
    return grant(cursor=CursorRange(**{"start": 0, "count": 20, "seed": 3, **fields}))


FORGED: dict[str, tuple[Make, str]] = {
    "flipped signature": (forged, "bad-signature"),
    "signed by another key": (lambda running: offer(running, signer=PartyKey.generate()), "bad-signature"),
    "signed by the enrolled key": (
        lambda running: offer(running, signer=running.orchestrator.enrolled),
        "bad-signature",
    ),
    "another sealed key under this offer": (other_sealed, "bad-signature"),
    "edited document": (edited, "bad-signature"),
}
AUTHENTIC: dict[str, tuple[Make, str]] = {
    "another manifest": (document(manifest="00" * 32), "offer-manifest"),
    "another holder": (grant(holder="south"), "offer-holder"),
    "another port": (grant(port="holder-south"), "wrong-port"),
    "the orchestrator's port": (grant(port="orchestrator"), "wrong-port"),
    "another channel": (document(channel="c_99"), "offer-channel"),
    "more records": (cursor(count=40), "records-not-planned"),
    "larger records": (grant(record_bytes=128, byte_budget=20 * 128), "record-size"),
    "larger budget": (grant(byte_budget=1 << 20), "budget-not-planned"),
    "smaller budget": (grant(byte_budget=64), "budget-not-planned"),
    "no budget for the proof": (grant(byte_budget=20 * 64), "budget-not-planned"),
    "another dataset's root": (grant(dataset_root="d0" * 32), "root-not-approved"),
    "a dataset of another size": (grant(dataset_records=51), "root-not-approved"),
    "expired": (expired, "offer-expired"),
    "beyond the lease": (long_lease, "lease-too-long"),
    "other records": (cursor(start=20), "cursor-not-planned"),
    "fewer records": (cursor(count=10), "records-not-planned"),
    "shuffled": (cursor(order="shuffled"), "order-not-planned"),
    "another seed": (cursor(seed=4), "order-not-planned"),
    "beyond the rounds": (lambda running: offer(running, round=6), "too-many-rounds"),
    "another stop": (document(index=2), "index-not-planned"),
    "round and index differ": (document(index=3), "index-not-planned"),
    "another epoch of IVs": (document(iv_epoch=999), "epoch-mismatch"),
    "forged log head": (wrong_log_signature, "bad-signature"),
    "forged log size": (document(log_size=5), "bad-signature"),
}


async def refused(running: Running, make: Make) -> tuple[OfferDocument, dict[str, int]]:
    """Send one offer; what the holder counted as refused for it."""
    running.holder.visits.refusals.clear()
    made, doc = make(running)
    running.gpu.install(doc, visit_key())
    running.orchestrator.send_offer(made)
    await running.until(lambda: running.holder.visits.refusals)
    return doc, dict(running.holder.visits.refusals)


@attack("V23", any="stopped: offers are signed by the attested session key")
async def test_nobodys_offer_is_not_even_answered(running: Running) -> None:
    await running.approved_with_channel()
    for name, (make, code) in FORGED.items():
        _, counted = await refused(running, make)
        assert (name, counted) == (name, {code: 1})
        assert running.holder.ledger.state(SESSION).highest_epoch == 0  # an attacker cannot use epochs up
    await asyncio.sleep(0.05)
    assert running.gpu.calls == 0
    assert running.orchestrator.refusals == []
    await one_visit(running, 1, 1)  # and the true offer is served all the same


async def test_an_authentic_but_wrong_offer_is_refused_by_name(running: Running) -> None:
    await running.approved_with_channel()
    for number, (name, (make, code)) in enumerate(AUTHENTIC.items(), start=1):
        doc, counted = await refused(running, make)
        assert (name, counted) == (name, {code: 1})
        await running.until(lambda number=number: len(running.orchestrator.refusals) == number)
        assert running.orchestrator.refusals[-1]["code"] == code
        shown = await running.get(f"/v1/visits/{doc.grant.visit}")
        assert (name, shown["phase"], shown["refusal"]["code"]) == (name, "REFUSED", code)
    assert running.gpu.calls == 0


async def test_sealed_to_a_key_this_holder_never_had(running: Running) -> None:
    await running.approved_with_channel()
    channel = running.orchestrator.proven
    stranger = OneTimeKey.generate()
    to = running.orchestrator.next_key
    object.__setattr__(to, "public", stranger.public)
    object.__setattr__(to, "digest", sha256(stranger.public).hex())
    made, doc = running.orchestrator.make_offer(visit_key(), seal_to=to)
    running.gpu.install(doc, visit_key())
    running.orchestrator.send_offer(made)
    # The holder opens a new channel (the only way to a key both sides know) and touches nothing.
    await running.until(lambda: running.orchestrator.proven is not channel)
    assert running.gpu.calls == 0


async def test_garbage_sealed_to_the_right_key(running: Running) -> None:
    """The orchestrator's own signature over something that does not open: the visit is refused, the GPU never called."""
    from shared.attestation import offers
    from shared.canonical import json_bytes

    await running.approved_with_channel()
    made, doc = offer(running)
    raw = json_bytes(doc.model_dump(mode="json"))
    sealed = b"\x01" * 1200
    signature = running.orchestrator.signing.sign(
        offers.LABEL, offers._transcript(running.orchestrator.next_key.document, raw, sealed)
    )
    import base64

    bad = made.model_copy(
        update={"sealed": base64.b64encode(sealed).decode(), "signature": base64.b64encode(signature).decode()}
    )
    running.gpu.install(doc, visit_key())
    running.orchestrator.send_offer(bad)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "offer-unsealable"
    assert running.gpu.calls == 0


async def one_visit(running: Running, epoch: int, round: int, **changes: Any) -> None:
    made, doc = running.orchestrator.make_offer(
        visit_key(epoch), epoch=epoch, round=round, visit=f"v_{epoch:016d}", **changes
    )
    running.gpu.install(doc, visit_key(epoch))
    running.orchestrator.send_offer(made)
    await running.until(lambda: any(report.epoch == epoch for report in running.orchestrator.reports))


async def test_older_epoch_is_ignored(running: Running) -> None:
    await running.approved_with_channel()
    await one_visit(running, 1, 1)
    calls = running.gpu.calls
    made, _ = running.orchestrator.make_offer(visit_key(), epoch=1, round=2, visit="v_0000000000000099")
    running.orchestrator.send_offer(made)
    await asyncio.sleep(0.1)
    assert running.gpu.calls == calls


async def test_log_must_extend_the_remembered_head(running: Running) -> None:
    await running.approved_with_channel()
    running.orchestrator.leaves = [b"one", b"two", b"three"]
    await one_visit(running, 1, 1)
    running.orchestrator.leaves.append(b"four")
    await one_visit(running, 2, 2, log_from=0)  # a proof from elsewhere: the holder asks for the one it needs
    calls = running.gpu.calls
    for leaves, code in (
        ([b"one", b"two", b"three"], "log-rolled-back"),
        ([b"one", b"two", b"THREE", b"four", b"five"], "bad-consistency-proof"),
        ([b"one", b"two", b"three", b"FOUR"], "bad-consistency-proof"),
    ):
        running.orchestrator.leaves = list(leaves)
        epoch = 10 + len(running.orchestrator.refusals)
        made, _ = running.orchestrator.make_offer(
            visit_key(9), epoch=epoch, round=3, visit="v_0000000000000003", log_from=min(4, len(leaves))
        )
        before = len(running.orchestrator.refusals)
        running.orchestrator.send_offer(made)
        await running.until(lambda before=before: len(running.orchestrator.refusals) > before)
        assert running.orchestrator.refusals[-1]["code"] == code
    assert running.gpu.calls == calls
    running.orchestrator.leaves = [b"one", b"two", b"three", b"four"]
    made, doc = running.orchestrator.make_offer(visit_key(9), epoch=20, round=3, visit="v_0000000000000003", log_from=4)
    running.gpu.install(doc, visit_key(9))
    running.orchestrator.send_offer(made)  # the true log goes on, with the one-time key that no refusal has spent
    await running.until(lambda: len(running.orchestrator.reports) == 3)


async def test_vetoed_session_gets_nothing(running: Running) -> None:
    await running.approved_with_channel()
    made, doc = running.orchestrator.make_offer(visit_key())
    manifest = running.orchestrator.manifest.digest().hex()  # type: ignore[union-attr]
    answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json={"manifest": manifest})
    assert answer.status_code == 200
    running.gpu.install(doc, visit_key())
    running.orchestrator.send_offer(made)
    await asyncio.sleep(0.1)
    assert running.gpu.calls == 0
