"""Copy engine: moves ciphertext into protected memory under a grant. Knows no HTTP, no clock of its own, no session.

Whatever the port sends, one of three things happens: the record is accepted in order, it is a byte-identical repeat and is
acknowledged without effect, or the grant dies and what it wrote is erased.
"""

from __future__ import annotations

from typing import Final

from gpu_agent.hardware.epochs import Epochs
from gpu_agent.hardware.grants import GrantTable, LiveGrant
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.record_rules import check_due, most_bytes, most_records
from gpu_agent.hardware.regions import RegionFact, RegionTable
from gpu_agent.hardware.shares import Shares
from gpu_agent.hardware.staging import Staging
from shared.claims.visit import Grant
from shared.crypto.chains import OpeningChains
from shared.crypto.schedule import VisitContext, visit_iv_mask, visit_key
from shared.crypto.stock_channel import StockChannel
from shared.errors import BadRequest, GputError, NotPermitted, ProtocolViolation, Refused, VerificationFailed
from shared.names import RegionPhase, Role
from shared.protocol.membership import NOT_APPROVED, HashLeaves, check_membership, commitment, leaf_hashes
from shared.protocol.record_order import records_of
from shared.protocol.travel import TRAVEL
from shared.wire.codec import decode
from shared.wire.copy import (
    DATA,
    PROOF,
    Closing,
    Copied,
    CopyHeader,
    StagedAck,
    parse_record,
)
from shared.wire.gpu_answers import Fetched, GrantInstalled, RegionContent

LITTLE_BYTES: Final = 512 * 1024 * 1024
"""What is erased within a tenth of a second."""


class CopyEngine:
    """All holders' copies into dataset regions. `hash_leaves`: how records' leaves are computed."""

    def __init__(self, hbm: HBM, regions: RegionTable, epochs: Epochs, hash_leaves: HashLeaves = leaf_hashes) -> None:
        self._hbm, self._regions, self._epochs, self.hash_leaves = hbm, regions, epochs, hash_leaves
        self.grants, self.shares, self.staging = GrantTable(), Shares(), Staging()

    def install(self, grant: Grant) -> GrantInstalled:
        """Derive the visit key of a checked grant and let it write (design 4.5); where shares are agreed, make room in staging.

        Raises:
            ProtocolViolation: its epoch is not open, or its shares are others. VerificationFailed `bad-share`. Nothing changed.
        """
        secret = self._epochs.require_alive(grant.epoch).reveal()
        recipient = bytes.fromhex(grant.recipient)
        context = VisitContext(grant.session, grant.epoch, grant.holder, grant.region, recipient)
        engine, channel_counter = self.grants.slot(grant.epoch)
        mask = visit_iv_mask(secret, context)
        label = f"visit/{grant.epoch}/h2d"
        key = visit_key(secret, context)
        stock = StockChannel(key, grant, "gpu") if TRAVEL[grant.mode].whole_gpu else None
        if TRAVEL[grant.mode].agreed:
            key = self.shares.agree(grant, key)
            self.staging.open(grant.epoch, most_records(grant), most_bytes(grant))
        channel = OpeningChains(key, grant.chains, label=label, iv_mask=mask, channel_counter=channel_counter)
        self._regions.move(grant.region, RegionFact.GRANTED, Role.ORCHESTRATOR)
        self.grants.install(grant, channel, stock)
        return GrantInstalled(engine=engine, channel_counter=channel_counter, iv_mask=mask)

    def copy(self, port: str, record: bytes | memoryview, now: float) -> Copied:
        """One copy record on a holder's port. `now`: seconds since 1970.

        Raises:
            BadRequest: no copy record at all. ProtocolViolation `no-grant`. Both change nothing.
            Refused `copy-refused`: the grant is dead now, and what it wrote is erased.
        """
        header, raw, sealed = parse_record(record)
        live = self.grants.require(port, header.epoch, header.region)
        if TRAVEL[live.grant.mode].agreed:
            raise NotPermitted("this grant has no command path: its records go to staging", code="no-command-path")
        if live.dead is not None:
            raise _refusal(live, live.dead)
        if header.index < live.accepted and self._is_repeat(live, header, raw, sealed):
            return _ack(live, header)
        if live.consumed:
            raise _refusal(live, "the closing record has consumed the grant")
        if not self._take(live, header, raw, sealed, now):
            raise _refusal(live, live.dead or "")
        return _ack(live, header)

    def soon(self, record: bytes | memoryview) -> bool:
        """Whether `copy` takes a cipher's time: no other chain's thread is waited for, and if the record ends the grant, little is erased.

        Raises:
            BadRequest: no copy record at all.
        """
        header, _, _ = parse_record(record)
        live = self.grants.of_epoch(header.epoch)
        return live is not None and not live.grant.more_chains and live.received <= LITTLE_BYTES

    def stage(self, port: str, record: bytes | memoryview, now: float) -> StagedAck:
        """Leave a copy record for a later fetch. Nobody is asked for a key here, and nothing is believed.

        Raises:
            BadRequest: no copy record at all. ProtocolViolation `no-grant`. NotPermitted `no-staging`. Refused `grant-expired`.
            LimitExceeded `staging-full`. None changes anything.
        """
        header, _, _ = parse_record(record)
        live = self.grants.require(port, header.epoch, header.region)
        if not TRAVEL[live.grant.mode].agreed:
            raise NotPermitted("this grant's records go to the copy engine, not to staging", code="no-staging")
        if now >= live.grant.expires_at:
            raise Refused("the grant has expired", code="grant-expired")
        received = self.staging.put(header.epoch, header.index, bytes(record))
        return StagedAck(index=header.index, received=received)

    def fetch(self, epoch: int) -> Fetched:
        """Fetch, decrypt, check and publish what lies in staging for a grant: all of it, or nothing.

        Whoever left it had until the grant's expiry; fetching it is the orchestrator's command, whenever that comes.

        Raises:
            ProtocolViolation `no-grant`, `already-fetched`. Nothing changed.
        """
        live = self.grants.of_epoch(epoch)
        if live is None or not TRAVEL[live.grant.mode].agreed:
            raise ProtocolViolation(f"epoch {epoch} has no grant whose records are fetched", code="no-grant")
        if live.fetched:
            raise ProtocolViolation(f"the records of epoch {epoch} were fetched", code="already-fetched")
        live.fetched = True
        for record in self.staging.take(epoch):
            try:
                header, raw, sealed = parse_record(record)
            except BadRequest as error:
                self._kill(live, 0, error)
                break
            # What lies behind the closing record is nobody's: anybody could have left it there.
            if not self._take(live, header, raw, sealed, None) or live.consumed:
                break
        refusal = live.dead or (None if live.consumed else "staging does not hold the whole visit")
        return Fetched(published=live.consumed, records=live.accepted, refusal=refusal)

    def _take(self, live: LiveGrant, header: CopyHeader, raw: bytes, sealed: memoryview, now: float | None) -> bool:
        """Accept the record that is due; False: it was not, and the grant is dead. `now` None: it came in time, to staging."""
        try:
            check_due(live, header, now)
            self._accept(live, header, raw, sealed)
        except Exception as error:
            known = error if isinstance(error, GputError) else ProtocolViolation("the record could not be opened")
            self._kill(live, header.length if header.kind == DATA else 0, known)
            if known is not error:  # a fault of ours: what it left half done is erased all the same
                raise
            return False
        live.accepted += 1
        return True

    def _is_repeat(self, live: LiveGrant, header: CopyHeader, raw: bytes, sealed: memoryview) -> bool:
        """Whether these are the very bytes accepted at this index. Costs one pass of the cipher, and only repeats pay it."""
        try:
            live.channel.check_repeat(header.index + 1, sealed, raw + live.context)
        except VerificationFailed:
            return False
        return True

    def _accept(self, live: LiveGrant, header: CopyHeader, raw: bytes, sealed: memoryview) -> None:
        if header.kind == DATA:
            self._write(live, header, raw, sealed)
        elif header.kind == PROOF:
            live.proof += live.channel.open(sealed, raw + live.context)
        else:
            self._close(live, raw, sealed)

    def _write(self, live: LiveGrant, header: CopyHeader, raw: bytes, sealed: memoryview) -> None:
        region = self._regions.get(live.grant.region)
        address = region.address + live.received
        target = self._hbm.landing(address, header.length)
        live.channel.open_into(sealed, raw + live.context, target)
        self._hbm.land(address, header.length)
        self._regions.move(region.handle, RegionFact.CHUNK, Role.HOLDER)
        live.received += header.length

    def _close(self, live: LiveGrant, raw: bytes, sealed: memoryview) -> None:
        """Publish the region if the closing record states exactly what lies in it, and that is what the holder approved to bring."""
        grant = live.grant
        closing = decode(Closing, live.channel.open(sealed, raw + live.context))
        region = self._regions.get(grant.region)
        rules = (
            (closing.visit == grant.visit, "the closing record names another visit"),
            (closing.chunks == grant.chunks, "the closing record counts other chunks"),
            (closing.records == grant.records, "the closing record counts other records"),
            (closing.length == live.received == grant.length, "the closing record states another length"),
            (len(live.proof) + len(closing.proof) <= grant.proof_budget, "the membership proof is too long"),
        )
        for holds, fault in rules:
            if not holds:
                raise BadRequest(fault)
        live.proof += closing.proof
        data = self._hbm.view(region.address, live.received)
        leaves = check_membership(
            data, bytes(live.proof), bytes.fromhex(grant.dataset_root), salt=closing.dataset_salt, cursor=grant.cursor,
            records=grant.dataset_records, hash_leaves=self.hash_leaves,
        )  # fmt: skip
        found = commitment(closing.salt, b"".join(leaves)).hex()
        if closing.commitment != found:
            raise BadRequest("the commitment is not that of the bytes in memory")
        self._regions.move(region.handle, RegionFact.CLOSED, Role.HOLDER)
        live.consumed, live.commitment = True, found
        live.salt, live.dataset_salt = closing.salt, closing.dataset_salt

    def _kill(self, live: LiveGrant, writing: int, fault: GputError) -> None:
        region = self._regions.get(live.grant.region)
        # A failed open may have left unauthenticated plaintext behind the last accepted chunk.
        written = min(region.length, live.received + writing)
        if written:
            self._hbm.erase(region.address, written)
        self._regions.move(region.handle, RegionFact.FAULT, Role.GPU)
        live.dead = fault.detail
        if fault.code == NOT_APPROVED:
            live.code = NOT_APPROVED
        live.proof.clear()
        live.channel.erase()  # the command path of stock firmware does not care: it ends with the fence

    def fence(self, epochs: list[int]) -> list[RegionContent]:
        """Kill epochs and their grants; what each left in its region, published or not. After this no old key writes."""
        left = []
        self.shares.forget(epochs)
        # Every key first: should a region be out of order, no grant outlives its epoch for that.
        for live in [self._end(epoch) for epoch in self._epochs.kill(epochs)]:
            if live is None:
                continue
            region = self._regions.move(live.grant.region, RegionFact.FENCED, Role.ORCHESTRATOR)
            if live.stock is not None and live.consumed and not self._still_there(live):
                live.consumed, live.dead = False, "the buffer changed after its closing record"
            left.append(_content(live, region.phase))
        return left

    def _end(self, epoch: int) -> LiveGrant | None:
        self.staging.discard(epoch)
        return self.grants.end(epoch)

    def _still_there(self, live: LiveGrant) -> bool:
        """Whether the buffer holds what was published: a key to the whole GPU could write there again (attack H14).

        Nobody writes there any more now, and nothing else is compared than the commitment itself: whatever else had been noted of the
        bytes when they were published, what a holder had launched could have changed them between the two readings, and back again.
        """
        grant = live.grant
        data = self._hbm.view(self._regions.get(grant.region).address, live.received)
        indexes = records_of(grant.cursor, grant.dataset_records).tolist()
        leaves = self.hash_leaves(live.dataset_salt, indexes, data)
        return commitment(live.salt, b"".join(leaves)).hex() == live.commitment


def _content(live: LiveGrant, phase: RegionPhase) -> RegionContent:
    published = live.consumed
    return RegionContent(
        region=live.grant.region,
        epoch=live.grant.epoch,
        phase=phase,
        published=published,
        records=live.grant.records if published else 0,
        length=live.received if published else 0,
        proof=len(live.proof) if published else 0,
        commitment=live.commitment if published else None,
        refusal=live.dead,
    )


def _ack(live: LiveGrant, header: CopyHeader) -> Copied:
    return Copied(header.index, live.received, live.consumed)


def _refusal(live: LiveGrant, reason: str) -> Refused:
    return Refused(
        f"copy for visit {live.grant.visit} refused: {reason}", code=live.code,
        remedy="The grant is dead; the orchestrator recalls the visit and plans it again under a new epoch.",
    )  # fmt: skip
