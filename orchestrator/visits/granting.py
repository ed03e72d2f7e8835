"""Steps 2 to 4, grant, offer, switch: a new epoch and grant in the GPU, the visit key sealed to the holder, the MUX at its port.

The key exists here between the draw and the sealing, and nowhere at rest. Knows no HTTP route.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import dataclass, field
from functools import partial

from orchestrator.gpu_session.life import Batch
from orchestrator.holders.arrivals import Recall
from orchestrator.holders.channels import Channel
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.outbox import Waiting
from orchestrator.visits.run import Run
from orchestrator.visits.shares import NO_SHARES, DrawnShares, check_shares
from shared.attestation.offers import seal_offer
from shared.attestation.one_time_keys import VerifiedOneTimeKey
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange, Grant
from shared.crypto.schedule import VisitContext, visit_iv_mask, visit_key
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, VerificationFailed
from shared.names import holder_port
from shared.protocol.membership import proof_limit
from shared.protocol.visit import VisitFact
from shared.wire.gpu import DrawShare, InstallGrant, OpenEpoch
from shared.wire.gpu_answers import EpochOpened, GrantInstalled, Statement
from shared.wire.visit import OfferDocument, VisitOffer


@dataclass(frozen=True)
class Wanted:
    """A visit that is to be granted to who holds `one_time_key`, and our half of its epoch's entropy (32 bytes). No repr of that."""

    visit: VisitState
    channel: Channel
    one_time_key: VerifiedOneTimeKey
    entropy: bytes = field(repr=False)

    @property
    def opening(self) -> OpenEpoch:
        """Opens its epoch."""
        return OpenEpoch(epoch=self.visit.epoch, entropy=self.entropy)


@dataclass(frozen=True)
class Granted:
    """A grant that the GPU installed or is to install, its key, and the one-time key that the offer is sealed to. No repr of the key.

    `channel`: its id; `share`: the GPU's signed statement of its share, where one is agreed. Nothing is written under the key before
    the GPU installed the grant, and `check_installed` held its answer to the key.
    """

    visit: VisitState
    grant: Grant
    channel: str
    share: bytes
    key: VisitKey
    one_time_key: VerifiedOneTimeKey


def want(run: Run, channel: Channel, visit: VisitState) -> Wanted:
    """What a grant of `visit` to `channel`'s holder takes; its one-time key is used up. Raises: Conflict: none is left."""
    return Wanted(visit, channel, run.channels.take_key(channel), run.entropy(32))


async def grant(run: Run, channel: Channel, visit: VisitState) -> Granted:
    """Open the visit's epoch and install its grant; the fact is staged.

    Raises:
        CommandRefused: the GPU refuses, for instance without the region's scrub proof. VerificationFailed: masks differ, or shares.
    """
    wanted = want(run, channel, visit)
    if not run.travel.agreed:
        commands = to_grant(run, wanted)
        return granted(run, wanted, commands, await run.life.batch(commands))
    # The grant names the GPU's share, so that is drawn first.
    opened = await run.life.batch([wanted.opening, DrawShare(epoch=visit.epoch, holder=visit.holder)])
    shares = check_shares(run, visit, wanted.one_time_key, opened.of(Statement).statement)
    installing = InstallGrant(grant=_grant(run, visit, wanted.one_time_key, shares))
    batch = await run.life.batch([installing])
    found = _drawn(run, wanted, installing.grant, opened.of(EpochOpened), shares)
    check_installed(found, batch.of(GrantInstalled))
    return found


def to_grant(run: Run, wanted: Wanted) -> tuple[OpenEpoch, InstallGrant]:
    """Commands that open the visit's epoch and install its grant, where no share is agreed."""
    return wanted.opening, InstallGrant(grant=_grant(run, wanted.visit, wanted.one_time_key, NO_SHARES))


def granted(run: Run, wanted: Wanted, commands: tuple[OpenEpoch, InstallGrant], batch: Batch) -> Granted:
    """What came of `to_grant`'s commands, which `batch` ended with; the fact is staged. Raises: VerificationFailed: other keys."""
    found = _drawn(run, wanted, commands[1].grant, batch.answer(-2, EpochOpened), NO_SHARES)
    check_installed(found, batch.answer(-1, GrantInstalled))
    return found


def drawn(run: Run, wanted: Wanted, opened: EpochOpened) -> Granted:
    """The grant and key of an epoch that is open, to be installed later, where no share is agreed; the fact is staged."""
    return _drawn(run, wanted, _grant(run, wanted.visit, wanted.one_time_key, NO_SHARES), opened, NO_SHARES)


def check_installed(granted: Granted, installed: GrantInstalled) -> None:
    """The GPU derived the key that the holder has, or is to have. Raises: VerificationFailed (code `iv-mask-mismatch`)."""
    ours = (granted.key.iv_mask, granted.key.engine, granted.key.channel_counter)
    theirs = (installed.iv_mask, installed.engine, installed.channel_counter)
    if ours != theirs:
        raise VerificationFailed(
            "GPU and orchestrator derive different IV masks, or count different channels", code="iv-mask-mismatch"
        )


def _drawn(run: Run, wanted: Wanted, grant: Grant, opened: EpochOpened, shares: DrawnShares) -> Granted:
    visit, channel = wanted.visit, wanted.channel
    secret = run.life.draw(visit.epoch, wanted.entropy, opened.entropy)
    context = VisitContext(
        grant.session, grant.epoch, grant.holder, grant.region, bytes.fromhex(wanted.one_time_key.digest)
    )
    mask = visit_iv_mask(secret.reveal(), context)
    key = VisitKey(visit_key(secret.reveal(), context), mask, opened.engine, opened.channel_counter)
    run.book.stage(
        new_fact(
            VisitFact.GRANTED, visit=grant.visit, life=grant.life, recipient=grant.recipient, channel=channel.id,
            expires_at=grant.expires_at, gpu_evidence=channel.gpu_evidence, holder_runtime_data=channel.holder_runtime,
            orchestrator_runtime_data=channel.orchestrator_runtime,
        )
    )  # fmt: skip
    return Granted(visit, grant, channel.id, shares.statement, key, wanted.one_time_key)


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


async def offer(run: Run, granted: Granted) -> None:
    """Have the MUX switched, and tell the holder.

    The switch begins first, for it takes longest and depends on none of these facts: the GPU has just obeyed this life with the grant, so
    no leader of the past comes as far as here. Nobody waits for it here: the holder needs longer to its first record.

    Raises:
        Recall: it was called back since it was planned, or as `tell`. Unavailable: the database refused.
    """
    if (why := run.arrivals.called_back(granted.visit.id)) is not None:
        raise why
    run.journey.begin(granted.visit.holder)
    await asyncio.sleep(0)  # so that the request is on its way
    await tell(run, granted)


async def tell(run: Run, granted: Granted) -> None:
    """Seal the visit key to the holder, commit, and put the offer into its inbox: it hears of the visit once that is durable.

    Raises:
        Recall: nothing can be sealed to the holder's one-time key. Unavailable: the database refused.
    """
    visit = granted.visit
    try:
        sealed = _sealed(run, granted)
    except BadRequest as error:
        if error.code != "bad-hpke-key":
            raise
        run.channels.close(visit.holder)  # it has to come with another key
        raise Recall(f"{visit.holder}'s one-time key: {error.detail}", blame=True) from error
    run.arrivals.expect(visit.id)
    offering = partial(run.inboxes.post, visit.holder, kind="offer", session=run.state.id, offer=sealed)
    await run.commit(Waiting(visit.holder, offering))


def _sealed(run: Run, granted: Granted) -> VisitOffer:
    """The offer; that it was made is staged."""
    state, visit = run.state, granted.visit
    head = run.signed_head()
    seen = state.offered_heads.get(visit.holder, 0)
    document = OfferDocument(
        channel=granted.channel, manifest=state.manifest_digest, grant=granted.grant,
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
