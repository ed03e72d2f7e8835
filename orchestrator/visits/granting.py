"""Steps 2 to 4, grant, offer, switch: a new epoch and grant in the GPU, the visit key sealed to the holder, the MUX at its port.

The key exists here between the draw and the sealing, and nowhere at rest. Knows no HTTP route.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from orchestrator.holders.channels import Channel
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run
from orchestrator.visits.shares import NO_SHARES, DrawnShares, check_shares
from shared.attestation.offers import seal_offer
from shared.attestation.one_time_keys import VerifiedOneTimeKey
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange, Grant
from shared.crypto.schedule import VisitContext, visit_iv_mask, visit_key
from shared.crypto.visit_key import VisitKey
from shared.errors import VerificationFailed
from shared.names import holder_port
from shared.protocol.membership import proof_limit
from shared.protocol.visit import VisitFact
from shared.wire.gpu import DrawShare, InstallGrant, OpenEpoch
from shared.wire.gpu_answers import EpochOpened, GrantInstalled, Statement
from shared.wire.visit import OfferDocument, VisitOffer


@dataclass(frozen=True)
class Granted:
    """A grant that the GPU installed, its key, and the one-time key that the offer is sealed to. No repr of the key.

    `share`: the GPU's signed statement of its share, where one is agreed.
    """

    visit: VisitState
    grant: Grant
    share: bytes
    key: VisitKey
    one_time_key: VerifiedOneTimeKey


async def grant(run: Run, channel: Channel, visit: VisitState) -> Granted:
    """Open the visit's epoch and install its grant; the fact is staged.

    Raises:
        CommandRefused: the GPU refuses, for instance without the region's scrub proof. VerificationFailed: masks differ, or shares.
    """
    one_time_key, ours = run.channels.take_key(channel), run.entropy(32)
    opening = OpenEpoch(epoch=visit.epoch, entropy=ours)
    if run.travel.agreed:  # the grant names the GPU's share, so that is drawn first
        opened = await run.life.batch([opening, DrawShare(epoch=visit.epoch, holder=visit.holder)])
        drawn = check_shares(run, visit, one_time_key, opened.of(Statement).statement)
        wanted = _grant(run, visit, one_time_key, drawn)
        granted = await run.life.batch([InstallGrant(grant=wanted)])
    else:
        drawn = NO_SHARES
        wanted = _grant(run, visit, one_time_key, drawn)
        opened = granted = await run.life.batch([opening, InstallGrant(grant=wanted)])
    secret, installed = run.life.draw(visit.epoch, ours, opened.of(EpochOpened).entropy), granted.of(GrantInstalled)
    context = VisitContext(
        wanted.session, wanted.epoch, wanted.holder, wanted.region, bytes.fromhex(one_time_key.digest)
    )
    mask = visit_iv_mask(secret.reveal(), context)
    if mask != installed.iv_mask:
        raise VerificationFailed("GPU and orchestrator derive different IV masks", code="iv-mask-mismatch")
    key = VisitKey(visit_key(secret.reveal(), context), mask, installed.engine, installed.channel_counter)
    run.book.stage(
        new_fact(
            VisitFact.GRANTED, visit=wanted.visit, life=wanted.life, recipient=wanted.recipient, channel=channel.id,
            expires_at=wanted.expires_at, gpu_evidence=channel.gpu_evidence, holder_runtime_data=channel.holder_runtime,
            orchestrator_runtime_data=channel.orchestrator_runtime,
        )
    )  # fmt: skip
    return Granted(visit, wanted, drawn.statement, key, one_time_key)


def _grant(run: Run, visit: VisitState, one_time_key: VerifiedOneTimeKey, drawn: DrawnShares) -> Grant:
    record_bytes, dataset = run.program.manifest.records.record_bytes, run.dataset_of(visit.holder)
    cursor = CursorRange.model_validate(visit.cursor)
    return Grant(
        session=run.state.id, visit=visit.id, life=run.life.number, epoch=visit.epoch, holder=visit.holder,
        port=holder_port(visit.holder), region=visit.region, cursor=cursor, record_bytes=record_bytes,
        byte_budget=cursor.count * record_bytes + proof_limit(cursor, dataset.records), dataset_root=dataset.root,
        dataset_records=dataset.records, chunk_bytes=MAX_CHUNK_BYTES, recipient=one_time_key.digest,
        expires_at=int(run.clock()) + run.state.manifest.lease_s + 1, mode=run.state.manifest.travel_mode,
        rights=run.travel.rights, address=run.placement.dataset_address if run.travel.told else None, shares=drawn.shares,
        more_chains=run.copy_chains - 1,
    )  # fmt: skip


async def offer(run: Run, channel: Channel, granted: Granted) -> None:
    """Have the MUX switched, seal the visit key to the holder, commit, and put the offer into the holder's inbox.

    The switch begins first, for it takes longest and depends on none of these facts: the GPU has just obeyed this life with the grant, so
    no leader of the past comes as far as here. A holder hears of the visit once it is durable.

    Raises:
        Unavailable: the platform does not answer.
    """
    visit = granted.visit
    async with _switching(run, visit.holder):
        sealed = _sealed(run, channel, granted)
        run.arrivals.expect(visit.id, visit.holder, visit.epoch)
        await run.commit()
        run.inboxes.post(visit.holder, kind="offer", session=run.state.id, offer=sealed)


@asynccontextmanager
async def _switching(run: Run, holder: str) -> AsyncIterator[None]:
    """The MUX's switch is under way inside, and over behind; it is given up where what is inside fails."""
    switching = asyncio.ensure_future(run.send_away(holder))
    try:
        await asyncio.sleep(0)  # so that the request is on its way
        yield
    except BaseException:
        switching.cancel()
        await asyncio.wait([switching])
        raise
    await switching


def _sealed(run: Run, channel: Channel, granted: Granted) -> VisitOffer:
    """The offer; that it was made is staged."""
    state, visit = run.state, granted.visit
    head = run.signed_head()
    seen = state.offered_heads.get(visit.holder, 0)
    document = OfferDocument(
        channel=channel.id, manifest=state.manifest_digest, grant=granted.grant,
        gpu=run.gpu, agent_url=run.agent_url,
        one_time_key=granted.one_time_key.digest, iv_epoch=visit.epoch, round=visit.round, index=visit.index,
        attempt=visit.attempt, gpu_share=b64encode(granted.share).decode(),
        log_size=head.head.size, log_root=head.head.root.hex(), log_time=head.head.time,
        log_signature=b64encode(head.signature).decode(), log_from=seen,
        log_consistency=[node.hex() for node in state.tree.consistency(seen, head.head.size)],
    )  # fmt: skip
    sealed = seal_offer(document, visit_key=granted.key, one_time_key=granted.one_time_key, signing_key=run.signing_key)
    run.book.stage(new_fact(VisitFact.OFFERED, visit=visit.id, log_size=head.head.size, log_root=head.head.root.hex()))
    return sealed
