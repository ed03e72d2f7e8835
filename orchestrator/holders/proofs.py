"""This orchestrator's own proofs: the quote that speaks for a life's session signing key and its GPU, to one holder or to everybody.

What is saved of one is what others need to check signatures later, never a key. Knows no HTTP route and no holder's answer.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from sqlalchemy import Connection, insert

from orchestrator.ids import new_channel_id
from orchestrator.sessions.book import Book, Row
from orchestrator.tables import CHANNELS
from shared.attestation.channel import build_orchestrator_runtime, report_data
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.introductions import ANYBODY, UNCHALLENGED
from shared.attestation.session_events import SESSION_EVENT, session_event
from shared.canonical import json_value
from shared.crypto.signing import PartyKey
from shared.names import Backend
from shared.service.clock import Clock, Entropy
from shared.service.guest import Guest
from shared.wire.visit import Evidence, GpuEvidence, RuntimeData


@dataclass(frozen=True)
class Proof:
    """One proof of ours. `runtime_data`: the exact bytes that the quote covers."""

    channel: str
    holder: str
    session: str
    runtime_data: bytes
    evidence: Evidence
    gpu_evidence: GpuEvidence
    not_after: float


class Prover:
    """Makes proofs for one life of a session."""

    def __init__(
        self, book: Book, *, signing_key: PartyKey, identity: PartyKey, guest: Guest, keeper: CollateralKeeper, clock: Clock,
        entropy: Entropy,
    ) -> None:  # fmt: skip
        self._book, self._signing_key, self._identity, self._guest = book, signing_key, identity, guest
        self._keeper, self._clock, self._entropy = keeper, clock, entropy

    async def prove(self, holder: str, challenge: str, gpu: GpuEvidence) -> Proof:
        """A quote over runtime data that names signing key and GPU. `challenge`: the holder's nonce (hex).

        Raises:
            As `Guest.quote`.
        """
        state = self._book.state
        not_after = int(self._clock() + state.manifest.orchestrator_evidence.max_age_s)
        runtime = build_orchestrator_runtime(
            session=state.id, holder=holder, manifest=state.manifest.digest().hex(), peer_nonce=challenge,
            nonce=self._entropy(32).hex(), signing_key=self._signing_key.public, enrolled_key=self._identity.public,
            gpu_evidence=gpu, not_after=not_after,
        )  # fmt: skip
        # Once per life of a session: what this VM does for whom stays in its runtime register until it is launched anew.
        await self._guest.record(SESSION_EVENT, session_event(RuntimeData.model_validate(json_value(runtime))))
        quoted = await self._guest.quote(report_data("orchestrator", runtime), about=state.id)
        evidence = await self._keeper.endorsed(quoted, self._clock())
        return Proof(new_channel_id(self._entropy), holder, state.id, runtime, evidence, gpu, not_after)

    async def introduction(self, gpu: GpuEvidence, *, life: int, boot_counter: int, backend: Backend) -> Row:
        """The life's own introduction, to go with the commit that opens it: what it signs before any holder comes can be verified.

        Raises:
            As `prove`.
        """
        proof = await self.prove(ANYBODY, UNCHALLENGED, gpu)
        return self.row(proof, life=life, boot_counter=boot_counter, emulated=backend is Backend.EMULATED)

    def row(self, proof: Proof, *, life: int, boot_counter: int, emulated: bool, answer: bytes = b"") -> Row:
        """A proof as others will ask for it. `answer`: the holder's runtime data."""
        values = {
            "channel": proof.channel, "session": proof.session, "holder": proof.holder, "life": life,
            "boot_counter": boot_counter, "signing_key": self._signing_key.public.hex(),
            "runtime_data": b64encode(proof.runtime_data).decode(), "evidence": proof.evidence.model_dump(mode="json"),
            "gpu_evidence": proof.gpu_evidence.model_dump(mode="json"), "holder_runtime_data": b64encode(answer).decode(),
            "opened_at": self._clock(), "emulated": emulated,
        }  # fmt: skip

        def write(connection: Connection) -> None:
            connection.execute(insert(CHANNELS).values(values))

        return write
