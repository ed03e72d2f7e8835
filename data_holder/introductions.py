"""Orchestrators' lives that this holder opened no channel with: their keys are believed by the life's own introduction. Knows no receipt.

A life may sign receipts and heads and end before a holder is asked for a channel (a restart during the export), or while it is away. What
it signed is held to the same roots, policies and GPU as a channel's offer; only nobody's challenge is in it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from data_holder.answers import listed, malformed
from data_holder.approvals import Approvals
from data_holder.channel import Verifier, channel_facts
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.protocol.state import CHANNEL, SessionState
from data_holder.requests import verify_manifest
from shared.attestation.introductions import ANYBODY, expected_introduction, judged_at
from shared.canonical import sha256
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.wire.visit import ChannelOffer

MAX_PAGES, MALFORMED = 500, "introduction-malformed"
_log = get_logger("data_holder.introductions")


class Introductions:
    """Learns session signing keys from the orchestrator's list of them, each believed by its quote alone."""

    def __init__(
        self, *, ledger: Ledger, approvals: Approvals, link: OrchestratorLink, verifier: Verifier, clock: Clock
    ) -> None:
        self._ledger, self._approvals, self._link = ledger, approvals, link
        self._verifier, self._clock = verifier, clock

    async def learn(self, session: str, kid: bytes) -> SessionState:
        """The session's state; it knows the session signing key with this id (the key itself, or its SHA-256) if a life introduces it.

        Raises:
            VerificationFailed, Refused: it is introduced by something that this holder does not believe. Unavailable: no answer.
        """
        state = self._ledger.state(session)
        if any(kid in (channel.signing_key, sha256(channel.signing_key)) for channel in state.channels.values()):
            return state
        async for item in listed(self._link, f"/v1/sessions/{session}/keys", MALFORMED, MAX_PAGES):
            if (offer := _introducing(item, kid)) is not None:
                return await self._believe(session, offer, kid)
        return state

    async def _believe(self, session: str, offer: ChannelOffer, kid: bytes) -> SessionState:
        state = self._ledger.state(session)
        request = verify_manifest(state.manifest, self._approvals.name, self._approvals.keys)
        expected = expected_introduction(session, request.digest, state.orchestrator_key(), state.known_gpu())
        max_age_s, since = request.manifest.orchestrator_evidence.max_age_s, await self._approvals.received_at(session)
        at = judged_at(offer, max_age_s, self._clock(), since=since)
        await self._verifier.prepare(offer, at=at)
        found = await asyncio.to_thread(self._verifier.verify_orchestrator, offer, expected, request.manifest, at=at)
        if kid not in (found.signing_key, sha256(found.signing_key)):
            raise malformed("an introduction of another key than it is listed as", MALFORMED)
        _log.info("orchestrator's life introduced", session=session, signer=found.signing_key.hex()[:16])
        # Of a channel it has no part of this holder's, so that no receipt can name it as the one of its visit.
        facts = channel_facts(found, offer, None)
        return await self._ledger.record(session, [(CHANNEL, facts)], lambda connection: None)


def _introducing(item: dict[str, Any], kid: bytes) -> ChannelOffer | None:
    """The introduction of the key with this id, if the item is one; nothing of it is verified yet."""
    try:
        key = bytes.fromhex(item["signing_key"])
        if item["holder"] != ANYBODY or kid not in (key, sha256(key)):
            return None
        named = {name: item[name] for name in ("runtime_data", "evidence", "gpu_evidence")}
        return ChannelOffer.model_validate({"channel": ANYBODY, **named})
    except (KeyError, TypeError, ValueError):
        raise malformed("a list of its keys that is malformed", MALFORMED) from None
