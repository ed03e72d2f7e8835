"""Attested channels to the holders of a session (design 4.2 step 4): both sides' quotes once, then signatures per visit.

A channel lives as long as the orchestrator's life on the GPU: its session signing key and every one-time key are in memory only.
Knows no HTTP route.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orchestrator.holders.proofs import Proof, Prover
from orchestrator.sessions.attested import attestation_row
from orchestrator.sessions.book import Book
from shared.attestation.channel import VerifiedHolder, gpu_evidence_digest, verify_holder
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.cpu_trust import CpuReference, CpuRoots
from shared.attestation.cpu_verifier import CpuPolicy, CpuTrust
from shared.attestation.dealing import deal_share
from shared.attestation.one_time_keys import VerifiedOneTimeKey, verify_one_time_key
from shared.attestation.snp_trust import SnpTrust
from shared.canonical import sha256
from shared.claims.manifest import RosterEntry
from shared.crypto.secret import Secret
from shared.crypto.shares import check_share
from shared.crypto.signing import PartyKey
from shared.errors import Conflict, NotPermitted, VerificationFailed
from shared.names import Backend
from shared.protocol.travel import TRAVEL
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.wire.visit import (
    ChannelOffer,
    ChannelProof,
    ChannelRequest,
    ChannelState,
    DealtShare,
    GpuEvidence,
    Signed,
)

PENDING_S = 120.0
MOST_PENDING = 2
"""Offers to one holder that wait for its proof: the newest, and one whose proof may be on its way. A holder that only asks is in
nobody's way but its own."""
_log = get_logger("orchestrator.channels")
Share = Callable[[str], Secret | None]
"""Holder -> its share of the session's key; None where the session has no such key."""
Timer = Callable[[], float]
"""Seconds that only go forward, from whenever: for how long something has been, where a clock may be put back."""
Attest = Callable[[bytes, bytes], Awaitable[GpuEvidence]]
"""(challenge, session signing key) -> fresh GPU evidence, asked inside the SPDM session."""


@dataclass(frozen=True)
class Pending:
    """An offer of ours that waits for the holder's proof."""

    ours: Proof
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
        self, book: Book, *, signing_key: PartyKey, prover: Prover, room: CpuRoom, attest: Attest, share: Share, clock: Clock,
        timer: Timer,
    ) -> None:  # fmt: skip
        self._book, self.signing_key, self._prover = book, signing_key, prover
        self._room, self._attest, self._share, self._clock, self._timer = room, attest, share, clock, timer
        self._pending: dict[str, Pending] = {}
        self._opening: dict[str, str] = {}  # holders by channels whose proof stands and is being written down
        self._open: dict[str, Channel] = {}
        self._asked: dict[str, float] = {}

    def ask(self, holder: str, again_after_s: float) -> bool:
        """Whether the holder is to be asked for a channel now: not while it is at it already.

        A second call to a holder that is just opening one would close what it opens, for ever.
        """
        now, last = self._timer(), self._asked.get(holder)
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
            NotPermitted: not an active holder.
        """
        self._entry(holder)
        now = self._clock()
        self._asked[holder] = self._timer()
        gpu = await self._attest(bytes.fromhex(request.nonce), self.signing_key.public)
        ours = await self._prover.prove(holder, request.nonce, gpu)
        self._prune(holder)
        self._pending[ours.channel] = Pending(ours, now + PENDING_S)
        return ChannelOffer(
            channel=ours.channel, runtime_data=b64encode(ours.runtime_data).decode(), evidence=ours.evidence, gpu_evidence=gpu
        )  # fmt: skip

    def _prune(self, holder: str) -> None:
        """What has expired goes, and of the holder's own all but so many that one more may come."""
        now = self._clock()
        self._pending = {key: value for key, value in self._pending.items() if value.expires > now}
        own = [key for key, value in self._pending.items() if value.ours.holder == holder]
        for channel in own[: 1 - MOST_PENDING]:
            del self._pending[channel]

    async def prove(self, holder: str, channel: str, proof: ChannelProof, enrolled_key: bytes) -> ChannelState:
        """Verify the holder's proof and open the channel; it replaces the holder's earlier one.

        Raises:
            Conflict: no such offer, or expired (code `channel-expired`). VerificationFailed: the proof fails, or its one-time key has no
                share that a traffic key could be agreed with where one is to be (`one-time-key-share`, `bad-share`).
        """
        entry, pending = self._entry(holder), self._pending.get(channel)
        if pending is None or pending.ours.holder != holder or pending.expires < self._clock():
            raise _expired(channel)
        ours = pending.ours
        policy = CpuPolicy.of(entry.evidence, allow_emulated=self._room.allow_emulated)
        trust = CpuTrust(self._room.roots, self._room.reference, policy, self._room.keeper.store, snp=self._room.snp)
        max_age, at = entry.evidence.max_age_s, self._clock()
        if (why := await self._room.keeper.prepare(proof.evidence, at)) is not None:
            _log.warning("collateral not fetched", holder=holder, why=why)
        # The quote's chain costs milliseconds of signatures: off the event loop.
        verified = await asyncio.to_thread(
            verify_holder, proof, channel=channel, orchestrator_runtime=ours.runtime_data, enrolled_key=enrolled_key,
            cpu=trust, max_lifetime_s=max_age, at=at,
        )  # fmt: skip
        self._check_usable(verified.one_time_key)
        # The same proof came twice, and the other one was faster; or the holder was dismissed meanwhile.
        if self._pending.pop(channel, None) is not pending:
            raise _expired(channel)
        not_after = min(ours.not_after, verified.runtime.not_after)
        state, cvm = self._book.state, verified.cvm
        emulated, answer = cvm.backend is Backend.EMULATED, verified.runtime_data
        self._book.row(
            self._prover.row(ours, life=state.life, boot_counter=state.boot_counter, emulated=emulated, answer=answer)
        )
        self._book.row(attestation_row(state, f"cvm:{holder}", cvm.appraisal, self.signing_key, life=state.life, at=at))
        self._opening[channel] = holder
        try:
            await self._book.commit()
        finally:
            still = self._opening.pop(channel, None)
        if still is None:  # the holder's word came to count no more while this was written down
            raise _expired(channel)
        self._open[holder] = Channel(
            channel, verified, sha256(ours.runtime_data).hex(), sha256(answer).hex(),
            gpu_evidence_digest(ours.gpu_evidence), not_after, verified.one_time_key,
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
        self._check_usable(verified)
        # A repeat of the key just used would be useless: the holder opens with each key once.
        if verified.digest != channel.last_key:
            channel.key = verified

    def _check_usable(self, key: VerifiedOneTimeKey) -> None:
        """What is found out here costs its holder a channel; at the grant it would cost everybody the session."""
        if not TRAVEL[self._book.state.manifest.travel_mode].agreed:
            return
        if key.share is None:
            raise VerificationFailed(
                "The holder's one-time key came without a share, by which this travel mode agrees keys",
                code="one-time-key-share",
            )
        check_share(key.share)

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

    def dismiss(self, holder: str) -> None:
        """The holder's key counts no more: as `close`, and what it is proving at this moment opens nothing either."""
        self.close(holder)
        self._pending = {key: value for key, value in self._pending.items() if value.ours.holder != holder}
        self._opening = {key: whose for key, whose in self._opening.items() if whose != holder}


def _expired(channel: str) -> Conflict:
    return Conflict(f"There is no open offer {channel}", code="channel-expired", remedy="Ask for a new channel.")
