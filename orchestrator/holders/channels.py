"""Attested channels to the holders of a session (design 4.2 step 4): both sides' quotes once, then signatures per visit.

A channel lives as long as the orchestrator's life on the GPU: its session signing key and every one-time key are in memory only. What
is saved is what others need to check signatures later (runtime data and evidence), never a key. Knows no HTTP route.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy import Connection, insert

from orchestrator.ids import new_channel_id
from orchestrator.sessions.attested import attestation_row
from orchestrator.sessions.book import Book, Row
from orchestrator.tables import CHANNELS
from shared.attestation.channel import (
    VerifiedHolder,
    build_orchestrator_runtime,
    gpu_evidence_digest,
    report_data,
    verify_holder,
)
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.cpu_trust import CpuReference, CpuRoots
from shared.attestation.cpu_verifier import CpuPolicy, CpuTrust
from shared.attestation.dealing import deal_share
from shared.attestation.one_time_keys import VerifiedOneTimeKey, verify_one_time_key
from shared.attestation.session_events import SESSION_EVENT, session_event
from shared.attestation.snp_trust import SnpTrust
from shared.canonical import json_value, sha256
from shared.claims.manifest import RosterEntry
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import Conflict, LimitExceeded, NotPermitted
from shared.names import Backend
from shared.service.clock import Clock, Entropy
from shared.service.guest import Guest
from shared.service.logging import get_logger
from shared.wire.visit import (
    ChannelOffer,
    ChannelProof,
    ChannelRequest,
    ChannelState,
    DealtShare,
    Evidence,
    GpuEvidence,
    RuntimeData,
    Signed,
)

PENDING_S = 120.0
MAX_PENDING = 1024
_log = get_logger("orchestrator.channels")
Share = Callable[[str], Secret | None]
"""Holder -> its share of the session's key; None where the session has no such key."""
Attest = Callable[[bytes, bytes], Awaitable[GpuEvidence]]
"""(challenge, session signing key) -> fresh GPU evidence, asked inside the SPDM session."""


@dataclass
class Pending:
    """An offer of ours that waits for the holder's proof."""

    holder: str
    session: str
    runtime_data: bytes
    evidence: Evidence
    gpu_evidence: GpuEvidence
    not_after: float
    expires: float


@dataclass
class Channel:
    """An open channel. `key` is the holder's next one-time key, taken once."""

    id: str
    verified: VerifiedHolder
    orchestrator_runtime: str  # SHA-256, hex
    holder_runtime: str
    gpu_evidence: str
    not_after: float
    key: VerifiedOneTimeKey | None
    last_key: str = ""


@dataclass(frozen=True)
class CpuRoom:
    """What the operator trusts: roots, reference values, collateral, and whether emulated evidence may count at all."""

    roots: CpuRoots
    reference: CpuReference
    allow_emulated: bool
    keeper: CollateralKeeper
    snp: SnpTrust | None = None


class Channels:
    """The channels of one life of one session."""

    def __init__(
        self, book: Book, *, signing_key: PartyKey, identity: PartyKey, guest: Guest, room: CpuRoom,
        attest: Attest, share: Share, clock: Clock, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._book, self.signing_key, self._identity = book, signing_key, identity
        self._guest, self._room, self._attest, self._share = guest, room, attest, share
        self._clock, self._entropy = clock, entropy
        self._pending: dict[str, Pending] = {}
        self._open: dict[str, Channel] = {}
        self._asked: dict[str, float] = {}

    def ask(self, holder: str, again_after_s: float) -> bool:
        """Whether the holder is to be asked for a channel now: not while it is at it already.

        A second call to a holder that is just opening one would close what it opens, for ever.
        """
        now, last = self._clock(), self._asked.get(holder)
        if last is not None and now - last < again_after_s:
            return False
        self._asked[holder] = now
        return True

    def _entry(self, holder: str) -> RosterEntry:
        state = self._book.state
        entry = next((e for e in state.manifest.roster if e.holder == holder), None)
        if entry is None or holder not in state.active:
            raise NotPermitted(f"{holder} takes no part in this session", code="not-in-session",
                               remedy="Approve the manifest first.")  # fmt: skip
        return entry

    async def offer(self, holder: str, request: ChannelRequest) -> ChannelOffer:
        """Our proof, over the holder's nonce: fresh GPU evidence, then a quote that covers it.

        Raises:
            NotPermitted: not an active holder. LimitExceeded: too many unanswered offers.
        """
        self._entry(holder)
        self._prune()
        state, now = self._book.state, self._clock()
        self._asked[holder] = now
        gpu = await self._attest(bytes.fromhex(request.nonce), self.signing_key.public)
        not_after = int(now + state.manifest.orchestrator_evidence.max_age_s)
        runtime = build_orchestrator_runtime(
            session=state.id, holder=holder, manifest=state.manifest.digest().hex(), peer_nonce=request.nonce,
            nonce=self._entropy(32).hex(), signing_key=self.signing_key.public, enrolled_key=self._identity.public,
            gpu_evidence=gpu, not_after=not_after,
        )  # fmt: skip
        # Once per life of a session: what this VM does for whom stays in its runtime register until it is launched anew.
        await self._guest.record(SESSION_EVENT, session_event(RuntimeData.model_validate(json_value(runtime))))
        evidence = await self._guest.quote(report_data("orchestrator", runtime), about=state.id)
        channel = new_channel_id(self._entropy)
        self._pending[channel] = Pending(holder, state.id, runtime, evidence, gpu, not_after, now + PENDING_S)
        return ChannelOffer(
            channel=channel, runtime_data=b64encode(runtime).decode(), evidence=evidence, gpu_evidence=gpu
        )

    def _prune(self) -> None:
        now = self._clock()
        self._pending = {key: value for key, value in self._pending.items() if value.expires > now}
        if len(self._pending) >= MAX_PENDING:
            raise LimitExceeded("Too many channels wait for a proof", code="too-many-channels")

    async def prove(self, holder: str, channel: str, proof: ChannelProof, enrolled_key: bytes) -> ChannelState:
        """Verify the holder's proof and open the channel; it replaces the holder's earlier one.

        Raises:
            Conflict: no such offer, or expired (code `channel-expired`). VerificationFailed: the proof fails.
        """
        entry, pending = self._entry(holder), self._pending.get(channel)
        if pending is None or pending.holder != holder or pending.expires < self._clock():
            raise Conflict(f"There is no open offer {channel}", code="channel-expired", remedy="Ask for a new channel.")
        policy = CpuPolicy.of(entry.evidence, allow_emulated=self._room.allow_emulated)
        trust = CpuTrust(self._room.roots, self._room.reference, policy, self._room.keeper.store, snp=self._room.snp)
        max_age, at = entry.evidence.max_age_s, self._clock()
        if (why := await self._room.keeper.prepare(proof.evidence, at)) is not None:
            _log.warning("collateral not fetched", holder=holder, why=why)
        # The quote's chain costs milliseconds of signatures: off the event loop.
        verified = await asyncio.to_thread(
            verify_holder, proof, channel=channel, orchestrator_runtime=pending.runtime_data, enrolled_key=enrolled_key,
            cpu=trust, max_lifetime_s=max_age, at=at,
        )  # fmt: skip
        del self._pending[channel]
        not_after = min(pending.not_after, verified.runtime.not_after)
        self._book.row(self._row(channel, pending, verified))
        state, appraisal = self._book.state, verified.cvm.appraisal
        self._book.row(attestation_row(state, f"cvm:{holder}", appraisal, self.signing_key, life=state.life, at=at))
        await self._book.commit()
        self._open[holder] = Channel(
            channel, verified, sha256(pending.runtime_data).hex(), sha256(verified.runtime_data).hex(),
            gpu_evidence_digest(pending.gpu_evidence), not_after, verified.one_time_key,
        )  # fmt: skip
        self._asked.pop(holder, None)
        self._book.announce()
        return ChannelState(channel=channel, share=self._dealt(holder, verified))

    def _dealt(self, holder: str, verified: VerifiedHolder) -> DealtShare | None:
        """Its share, the same in every channel."""
        share = None if verified.share_key is None else self._share(holder)
        if share is None or verified.share_key is None:
            return None
        return deal_share(share, share_key=verified.share_key, signing_key=self.signing_key)

    def _row(self, channel: str, pending: Pending, verified: VerifiedHolder) -> Row:
        state = self._book.state
        values = {
            "channel": channel, "session": state.id, "holder": pending.holder, "life": state.life,
            "boot_counter": state.boot_counter, "signing_key": self.signing_key.public.hex(),
            "runtime_data": b64encode(pending.runtime_data).decode(), "evidence": pending.evidence.model_dump(mode="json"),
            "gpu_evidence": pending.gpu_evidence.model_dump(mode="json"),
            "holder_runtime_data": b64encode(verified.runtime_data).decode(), "opened_at": self._clock(),
            "emulated": verified.cvm.backend is Backend.EMULATED,
        }  # fmt: skip

        def write(connection: Connection) -> None:
            connection.execute(insert(CHANNELS).values(values))

        return write

    def ready(self, holder: str) -> Channel | None:
        """The holder's channel, if it is open, young enough and has a one-time key left."""
        channel = self._open.get(holder)
        if channel is None or channel.key is None or channel.not_after <= self._clock():
            return None
        return channel

    def is_open(self, holder: str) -> bool:
        """Whether the holder has an open channel (with or without a key left)."""
        return holder in self._open

    def next_key(self, holder: str, signed: Signed | None) -> None:
        """Remember the one-time key that came with a report. Raises: VerificationFailed, BadRequest."""
        channel = self._open.get(holder)
        if channel is None or signed is None:
            return
        verified = verify_one_time_key(
            signed,
            signing_key=channel.verified.signing_key,
            session=self._book.state.id,
            holder=holder,
            channel=channel.id,
        )
        # A repeat of the key just used would be useless: the holder opens with each key once.
        if verified.digest != channel.last_key:
            channel.key = verified

    def take_key(self, channel: Channel) -> VerifiedOneTimeKey:
        """The holder's one-time key, for one offer only. Raises: Conflict: none is left."""
        key, channel.key = channel.key, None
        if key is None:
            raise Conflict("The holder's one-time key was used", code="one-time-key-used")
        channel.last_key = key.digest
        return key

    def close(self, holder: str) -> None:
        """The holder's word is not good any more: it must open a new channel."""
        self._open.pop(holder, None)
