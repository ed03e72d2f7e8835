"""The attested channel: verify the orchestrator, answer with one's own quote, keep keys in memory only.

A restart forgets every key; the holder then opens a new channel, which kills the old one (design 4.2, 4.5). Knows no GPU link.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from data_holder.answers import parsed
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink, document
from data_holder.protocol.state import CHANNEL
from data_holder.recovery import ShareBook
from data_holder.requests import Approved
from data_holder.trust import AttestedGpu
from shared.attestation.channel import (
    OrchestratorExpectation,
    VerifiedOrchestrator,
    build_holder_runtime,
    gpu_evidence_digest,
    report_data,
    sign_one_time_key,
)
from shared.attestation.dealing import open_dealt
from shared.attestation.one_time_keys import SHARE_KEY_LABEL
from shared.attestation.recovery import RecoveryExpectation, VerifiedRecovery
from shared.attestation.session_events import SESSION_EVENT, session_event
from shared.canonical import json_value, sha256
from shared.claims.manifest import Manifest
from shared.crypto.hpke import OneTimeKey
from shared.crypto.shares import Share
from shared.crypto.signing import PartyKey
from shared.errors import ProtocolViolation, Refused, VerificationFailed
from shared.protocol.travel import TRAVEL
from shared.service.clock import Clock, Entropy
from shared.service.guest import Guest
from shared.service.logging import get_logger
from shared.wire.recovery import ShareOffer
from shared.wire.visit import ChannelOffer, ChannelProof, ChannelRequest, ChannelState, RuntimeData, Signed

MAX_UNUSED_KEYS = 4
MALFORMED = "channel-malformed"
_log = get_logger("data_holder.channel")


class Disbelieved(Refused):
    """The orchestrator answered that it does not believe this holder's evidence."""


class Verifier(Protocol):
    """Who decides whether an orchestrator is believed (`data_holder.trust.TrustAnchors`)."""

    async def prepare(self, offer: ChannelOffer | ShareOffer, *, at: float) -> None: ...

    def verify_recovery(
        self, offer: ShareOffer, expected: RecoveryExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedRecovery: ...

    def verify_orchestrator(
        self, offer: ChannelOffer, expected: OrchestratorExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedOrchestrator[AttestedGpu]: ...


@dataclass(frozen=True)
class Offered:
    """A one-time key as it was offered: private halves in memory only, and the signed document of the public ones."""

    key: OneTimeKey = field(repr=False)
    share: Share | None = field(repr=False)
    signed: Signed


@dataclass
class OpenChannel:
    """One channel's secrets, in memory only: no repr of keys, never stored."""

    session: str
    holder: str
    orchestrator: VerifiedOrchestrator[AttestedGpu]
    not_after: int
    agrees: bool  # the session's travel mode has traffic keys agreed with the GPU
    signing: PartyKey = field(repr=False)
    entropy: Entropy = field(repr=False)
    _keys: OrderedDict[str, Offered] = field(default_factory=OrderedDict, repr=False)

    def new_key(self) -> Signed:
        """A fresh one-time HPKE key, and a share where one is agreed, signed by the session signing key.

        The oldest unused one is forgotten beyond a few.
        """
        key, share = OneTimeKey.generate(), Share(self.entropy) if self.agrees else None
        signed = sign_one_time_key(
            self.signing, session=self.session, holder=self.holder, channel=self.orchestrator.channel,
            nonce=self.entropy(32).hex(), public=key.public, share=None if share is None else share.public,
        )  # fmt: skip
        self._keys[sha256(key.public).hex()] = Offered(key, share, signed)
        while len(self._keys) > MAX_UNUSED_KEYS:
            self._keys.popitem(last=False)
        return signed

    def signed_share_key(self, key: OneTimeKey) -> Signed:
        """The signed document of the key that this holder's share is to be sealed to."""
        return sign_one_time_key(
            self.signing, session=self.session, holder=self.holder, channel=self.orchestrator.channel,
            nonce=self.entropy(32).hex(), public=key.public, label=SHARE_KEY_LABEL,
        )  # fmt: skip

    def signed_key(self, digest: str) -> Signed:
        """The signed document of an unused one-time key. Raises: ProtocolViolation `one-time-key-unknown`."""
        return self._entry(digest).signed

    def share(self, digest: str) -> bytes | None:
        """The public share (32 bytes) that went with a one-time key. Raises: ProtocolViolation."""
        share = self._entry(digest).share
        return None if share is None else share.public

    def take(self, digest: str) -> Offered:
        """Give the one-time key and its share out and forget them. Raises: ProtocolViolation."""
        offered = self._entry(digest)
        del self._keys[digest]
        return offered

    def _entry(self, digest: str) -> Offered:
        if digest not in self._keys:
            raise ProtocolViolation(
                "the offer is sealed to a one-time key that this holder does not have", code="one-time-key-unknown",
                remedy="Nothing: after a restart the holder opens a new channel by itself",
            )  # fmt: skip
        return self._keys[digest]


class Channels:
    """The open channel of each session."""

    def __init__(
        self, *, name: str, key: PartyKey, link: OrchestratorLink, ledger: Ledger, guest: Guest,
        verifier: Verifier, shares: ShareBook, clock: Clock, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._name, self._key, self._link, self._ledger = name, key, link, ledger
        self._guest, self._verifier, self._shares = guest, verifier, shares
        self._clock, self._entropy = clock, entropy
        self._open: dict[str, OpenChannel] = {}

    def get(self, session: str) -> OpenChannel:
        """Raises: ProtocolViolation `channel-not-open` or `channel-expired`: a new channel is needed first."""
        channel = self._open.get(session)
        if channel is None:
            raise ProtocolViolation(f"no channel is open for session {session}", code="channel-not-open")
        if channel.not_after <= self._clock():
            raise ProtocolViolation(f"the channel of session {session} has expired", code="channel-expired")
        return channel

    def close(self, session: str) -> None:
        """Forget the channel's keys."""
        self._open.pop(session, None)

    async def open(self, session: str, approved: Approved) -> OpenChannel:
        """Attest the orchestrator, answer with one's own quote, and keep the share it deals, and the channel; the old one is dead.

        Raises:
            VerificationFailed: the orchestrator or its GPU is not what the manifest and this holder's trust folder ask for; or it deals
                another share than before (`share-differs`), or answers what is no offer (`channel-malformed`).
            Disbelieved: the orchestrator does not believe this holder.
            Refused: it identifies itself by another enrolled key than before. Unavailable: no answer.
        """
        offer, orchestrator, now = await self._attested(session, approved)
        channel = self._fresh(session, orchestrator, approved.request.manifest, int(now))
        runtime = build_holder_runtime(
            orchestrator, nonce=self._entropy(32).hex(), signing_key=channel.signing.public,
            enrolled_key=self._key.public, not_after=channel.not_after,
        )  # fmt: skip
        await self._guest.record(SESSION_EVENT, session_event(RuntimeData.model_validate(json_value(runtime))))
        share_key = OneTimeKey.generate()
        proof = ChannelProof(
            runtime_data=base64.b64encode(runtime).decode(),
            evidence=await self._guest.quote(report_data("holder", runtime), about=session),
            one_time_key=channel.new_key(),
            share_key=channel.signed_share_key(share_key),
        )
        opened = parsed(ChannelState, await self._say("PUT", session, f"/{offer.channel}", proof), MALFORMED)
        # Before any visit goes over it, whose receipt must find the facts after any restart; and not of a channel that was not accepted,
        # of which there may be any number.
        await self._ledger.record(
            session, [(CHANNEL, channel_facts(orchestrator, offer, runtime))], lambda connection: None
        )
        if opened.share is not None and proof.share_key is not None:
            signed, signer = proof.share_key, orchestrator.signing_key
            share = open_dealt(opened.share, signed_key=signed, key=share_key, signing_key=signer)
            await self._shares.keep(session, share)
        self._open[session] = channel
        _log.info("channel open", session=session, channel=offer.channel, backend=orchestrator.cvm.backend.value)
        return channel

    async def _attested(
        self, session: str, approved: Approved
    ) -> tuple[ChannelOffer, VerifiedOrchestrator[AttestedGpu], float]:
        """The orchestrator's offer of a channel, believed at the time that comes with it. Raises: as `open`."""
        nonce = self._entropy(32).hex()
        answer = await self._say("POST", session, "", ChannelRequest(nonce=nonce))
        offer = parsed(ChannelOffer, answer, MALFORMED)
        state, now = self._ledger.state(session), self._clock()
        # The same nonce is the GPU's challenge: its report is fresh for this channel, not the one of another holder or hour.
        expected = OrchestratorExpectation(
            session, self._name, approved.request.digest, nonce, state.orchestrator_key(), gpu_challenge=nonce,
            gpu_device=state.known_gpu(),
        )  # fmt: skip
        await self._verifier.prepare(offer, at=now)
        # A verifier may have to ask a RIM service; the operator's API goes on meanwhile.
        orchestrator = await asyncio.to_thread(
            self._verifier.verify_orchestrator, offer, expected, approved.request.manifest, at=now
        )
        return offer, orchestrator, now

    async def _say(self, method: str, session: str, rest: str, said: ChannelRequest | ChannelProof) -> object:
        """The orchestrator's answer. Raises: Disbelieved: its verdict, which must not be taken for one of this holder's on it."""
        try:
            return await self._link.send(method, f"/v1/sessions/{session}/channels{rest}", document(said))
        except VerificationFailed as error:
            raise Disbelieved(error.detail, code=error.code, remedy=error.remedy) from error

    def _fresh(
        self, session: str, orchestrator: VerifiedOrchestrator[AttestedGpu], manifest: Manifest, now: int
    ) -> OpenChannel:
        """A channel with a signing key of its own; it ends with the younger of the two proofs."""
        entry = next(entry for entry in manifest.roster if entry.holder == self._name)
        return OpenChannel(
            session, self._name, orchestrator,
            min(now + entry.evidence.max_age_s, orchestrator.runtime.not_after), TRAVEL[manifest.travel_mode].agreed,
            PartyKey.generate(self._entropy), self._entropy,
        )  # fmt: skip


def channel_facts(
    orchestrator: VerifiedOrchestrator[AttestedGpu], offer: ChannelOffer, holder_runtime: bytes | None
) -> dict[str, str]:
    """The body of the fact by which the journal remembers what an orchestrator's proof vouches for."""
    return {
        "channel": orchestrator.channel,
        "orchestrator_runtime": sha256(orchestrator.runtime_data).hex(),
        "holder_runtime": "" if holder_runtime is None else sha256(holder_runtime).hex(),
        "gpu_evidence": gpu_evidence_digest(offer.gpu_evidence),
        "signing_key": orchestrator.signing_key.hex(),
        "enrolled_key": orchestrator.runtime.enrolled_key,
        "statement_key": orchestrator.gpu.statement_key.hex(),
        "device": orchestrator.gpu.device,
    }
