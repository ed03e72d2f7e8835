"""Opening a life: which life number to ask for, and what it means when the GPU says no (design 4.5 "Lives"). Knows no visit.

The claim is committed before the GPU hears of it, so after a crash the GPU is in a life that the journal can explain; a GPU that is
in no such life fails the session. No life is asked for but right after a commit: whoever has lost its lease does not get that far.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from orchestrator.gpu_session.life import GpuLife, GpuRoom, Opening, open_spdm, refused_resume
from orchestrator.gpu_session.link import AgentLink, PublicFacts
from orchestrator.gpu_session.sealed import SealedSecrets, SessionSecrets
from orchestrator.holders.proofs import Prover
from orchestrator.in_clear import in_clear
from orchestrator.sessions.attested import attestation_row
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import claim, new_fact
from shared.crypto.schedule import resume_secret
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import Conflict, GputError, VerificationFailed
from shared.protocol.session import SessionFact
from shared.service.clock import Clock, Entropy
from shared.service.metrics import Failures
from shared.wire.gpu_answers import LifeOpened

DISTURBED: Final = ("unexplained-life", "gpu-refused-session")
"""What a stranger can bring about, who opens a session of its own at the GPU's port or says false things of its boots."""


@dataclass(frozen=True)
class OpenedLife:
    """A life, and whether the GPU still holds the session (else it was wiped and must be filled again)."""

    life: GpuLife
    opened: LifeOpened
    secrets: SessionSecrets
    resumed: bool


def _as_leader(_connection: Connection) -> None:
    """A transaction for its riders' sake: of who does not lead any more it fails, before the GPU is asked."""


class Opener:
    """Opens lives of one session on one GPU. `home` has the MUX lead to our port; `distrust` counts what was not believed."""

    def __init__(
        self, book: Book, link: AgentLink, home: Callable[[], Awaitable[None]], sealed: SealedSecrets, room: GpuRoom, signing_key: PartyKey,
        prover: Prover, distrust: Failures, clock: Clock, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._book, self._link, self._sealed, self._room, self._prover = book, link, sealed, room, prover
        self._home, self._distrust = home, distrust
        self._signing_key, self._clock, self._entropy = signing_key, clock, entropy

    async def open(self) -> OpenedLife:
        """Resume if the GPU is where the journal says; begin afresh if it was wiped.

        A stranger's handshake at the same port resets ours, and may wipe the GPU after we looked; and how often it has booted is said in
        clear. So a GPU in no life that the journal can explain ends a session only if it stays so over some lives.

        Raises:
            Unavailable: agent or platform do not answer, or another orchestrator leads. Refused: the platform does not switch for us.
            Conflict: codes DISTURBED; and as `in_clear`, whose evidence is not believed, with its code.
        """
        try:
            with self._distrust.counted():
                return await self._open()
        except VerificationFailed as error:
            if error.code not in DISTURBED:
                raise
            raise Conflict(
                error.detail, code=error.code, remedy=error.remedy, expected=error.expected, got=error.got
            ) from error

    async def _open(self) -> OpenedLife:
        secrets = await self._sealed.load()
        facts = await self._link.facts()
        if secrets is not None and self._book.state.placement is not None:
            for number, boot in self._candidates():
                life = await self._try(Opening(number, boot, secrets.resume), facts)
                if life is not None:
                    return await self._settle(life, secrets, resumed=True)
            self._must_be_wiped(facts)
        return await self._fresh(secrets, facts)

    def _candidates(self) -> Iterator[tuple[int, int]]:
        # Oldest first: the last claim may or may not have reached the GPU, and asking in this order never runs ahead by more than one.
        # A claim of another boot is that of a GPU wiped since it was placed: it holds nothing that is worth resuming.
        state = self._book.state
        known = {claim for claim in state.claims if claim[1] == state.boot_counter}
        known |= {(state.life, state.boot_counter)} if state.life else set()
        yield from sorted({(life + 1, boot) for life, boot in known}, key=lambda pair: pair[::-1])

    async def _try(self, opening: Opening, facts: PublicFacts) -> GpuLife | None:
        if (opening.number, opening.boot_counter) not in self._book.state.claims:
            self._book.stage(claim(opening.number, opening.boot_counter))
        else:
            self._book.row(_as_leader)  # the claim may be another orchestrator's, who leads now
        await self._book.commit()
        # Not before: who was deposed and does not know it would take the GPU from the holder that the new leader has sent it to.
        await self._home()
        try:
            session = await open_spdm(self._link, opening, self._signing_key.public, self._entropy)
        except GputError as error:
            if refused_resume(error):
                return None
            raise
        return GpuLife(
            self._link, session, opening, self._room, self._book.state.manifest.gpu_evidence, self._clock, self._entropy,
            facts.certificate,
        )  # fmt: skip

    def _must_be_wiped(self, facts: PublicFacts) -> None:
        state = self._book.state
        highest = max([state.boot_counter, *(boot for _, boot in state.claims)])
        if facts.boot_counter <= state.boot_counter and state.life:
            raise VerificationFailed(
                "The GPU refuses every life that this session's journal can explain", code="unexplained-life",
                remedy="Somebody else may have resumed this session; submit it again if that was intended.",
                expected=f"boot counter above {highest}", got=str(facts.boot_counter),
            )  # fmt: skip

    async def _fresh(self, secrets: SessionSecrets | None, facts: PublicFacts) -> OpenedLife:
        opening = Opening(1, facts.boot_counter + 1, None)
        life = await self._try(opening, facts)
        if life is None:
            raise VerificationFailed("The GPU refuses a fresh session", code="gpu-refused-session")
        checkpoint = secrets.checkpoint if secrets is not None else Secret(self._entropy(32))
        resume = Secret(resume_secret(life.master.reveal(), self._book.state.id))
        inherited = secrets.inherited if secrets is not None else None
        return await self._settle(life, SessionSecrets(resume, checkpoint, inherited), resumed=False)

    async def _settle(self, life: GpuLife, secrets: SessionSecrets, *, resumed: bool) -> OpenedLife:
        state = self._book.state
        # Until then anybody on the line may be the other end: with a chain of its own making, or with another certificate beside the GPU's.
        with in_clear("Who answered as the GPU was not believed"), self._distrust.counted():
            verified, evidence = await life.attest(self._signing_key.public, state.last_epoch, state.device)
        opened = await life.open()
        number, boot = life.number, life.boot_counter
        rows = [
            attestation_row(state, "gpu", verified.appraisal, self._signing_key, life=number, at=self._clock()),
            await self._prover.introduction(evidence, life=number, boot_counter=boot, backend=verified.backend),
        ]
        if not resumed:
            rows.append(self._sealed.saving(secrets))
        life.master = Secret(b"")  # its children are derived; nothing needs it any more
        await self._book.record(
            new_fact(
                SessionFact.LIFE_OPENED, life=number, boot_counter=boot, device=verified.device,
                backend=verified.backend.value, signing_key=self._signing_key.public.hex(), resumed=resumed,
            ),
            *rows,
        )  # fmt: skip
        return OpenedLife(life, opened, secrets, resumed)
