"""Giving this holder's share of a session's key to another orchestrator: only to one attested for it, and written down first. Knows no GPU.

Every refusal is the orchestrator's to hear, by name: a session that waits says for whom, and why.
"""

from __future__ import annotations

import asyncio
import base64

from data_holder.answers import parsed
from data_holder.approvals import Approvals
from data_holder.channel import Verifier
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink, document
from data_holder.protocol.state import RELEASED, SessionState
from data_holder.recovery import ShareBook
from data_holder.requests import Approved
from shared.attestation.recovery import RecoveryExpectation, VerifiedRecovery, give_share
from shared.canonical import sha256
from shared.crypto.secret import Secret
from shared.errors import Conflict, GputError, NotPermitted, Refused, Unavailable, VerificationFailed
from shared.service.clock import Clock, Entropy
from shared.service.logging import get_logger
from shared.wire.recovery import GivenShare, ShareOffer, ShareRefusal, ShareRequest

_log = get_logger("data_holder.shares")
NOT_WANTED = "share-not-wanted"


class ShareRelease:
    """Answers `share_wanted`."""

    def __init__(
        self, *, shares: ShareBook, ledger: Ledger, approvals: Approvals, link: OrchestratorLink, verifier: Verifier,
        clock: Clock, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._shares, self._ledger, self._approvals, self._link = shares, ledger, approvals, link
        self._verifier, self._clock, self._entropy = verifier, clock, entropy

    async def wanted(self, session: str) -> None:
        """Give the share, or say why not.

        Raises:
            NotFound: the session was never offered here. Unavailable: no answer, or what it judges by is not at hand; call again.
            VerificationFailed: `share-offer-malformed`.
            NotPermitted, Refused, VerificationFailed: as the orchestrator was told.
        """
        self._ledger.state(session)
        try:
            await self._give(session)
        except Conflict as error:
            if error.code != NOT_WANTED:
                raise
            _log.info("the share is not wanted any more", session=session)

    async def _give(self, session: str) -> None:
        try:
            approved, share, identity = await self._may(session)
        except Unavailable:
            raise
        except GputError as error:
            await self._refuse(session, error)
            raise
        path, nonce = f"/v1/sessions/{session}/share-offers", self._entropy(32).hex()
        answer = await self._link.send("POST", path, document(ShareRequest(nonce=nonce)))
        offer = parsed(ShareOffer, answer, "share-offer-malformed")
        expected = RecoveryExpectation(session, self._approvals.name, approved.request.digest, nonce, identity)
        try:
            verified = await self._verified(offer, expected, approved)
        except Unavailable:  # something of this holder's own is not at hand: no verdict on who asks
            raise
        except GputError as error:
            await self._refuse(session, error)
            raise
        # Written down before it leaves: whatever becomes of the answer, this holder knows whom it trusted with its share.
        body = {"measurement": verified.measurement, "runtime": sha256(verified.runtime_data).hex()}
        try:  # and not after a veto, or the session's end, that came while the orchestrator was asked
            await self._ledger.record(session, [(RELEASED, body)], lambda connection: None, self._stands)
        except (NotPermitted, VerificationFailed) as error:
            await self._refuse(session, error)
            raise
        sealed = base64.b64encode(give_share(share, verified)).decode()
        given = GivenShare(sealed=sealed, measurement=verified.measurement)
        await self._link.send("PUT", f"{path}/{offer.offer}", document(given))
        _log.warning("gave the share of a session's key", session=session, measurement=verified.measurement)

    async def _may(self, session: str) -> tuple[Approved, Secret, bytes]:
        """Manifest as approved, the share, the orchestrator's identity. Raises: NotPermitted, Refused, VerificationFailed."""
        state = self._ledger.state(session)
        approved = self._stands(state)
        share, identity = await self._shares.find(session), state.orchestrator_key()
        if share is None or identity is None:
            raise Refused(f"this holder has no share of the key of {session} that it can open", code="no-share")
        return approved, share, identity

    def _stands(self, state: SessionState) -> Approved:
        """This holder agrees, and the session goes on. Raises: NotPermitted, VerificationFailed."""
        if state.ended is not None:
            raise NotPermitted(
                f"for this holder session {state.session} has ended ({state.ended})", code="session-ended"
            )
        return self._approvals.stands(state)

    async def _verified(self, offer: ShareOffer, expected: RecoveryExpectation, approved: Approved) -> VerifiedRecovery:
        manifest, now = approved.request.manifest, self._clock()
        await self._verifier.prepare(offer, at=now)
        return await asyncio.to_thread(self._verifier.verify_recovery, offer, expected, manifest, at=now)

    async def _refuse(self, session: str, why: GputError) -> None:
        refusal = ShareRefusal(code=why.code, detail=why.detail[:500])
        await self._link.send("POST", f"/v1/sessions/{session}/share-refusals", document(refusal))
