"""One life on the GPU: an SPDM session, the keys that hang on it, and batches of commands. Knows no visit and no storage.

No key outlives the object: the SPDM session's export master secret becomes the command channel's keys and the root key, and is dropped.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.gpu_session.link import AgentLink
from orchestrator.in_clear import in_clear
from shared.attestation.gpu_verifier import (
    GpuPolicy,
    GpuTrust,
    VerifiedGpu,
    verify_gpu_evidence,
    verify_statement_key,
)
from shared.attestation.nonces import gpu_nonce
from shared.attestation.spdm_requester import SpdmRequester, SpdmSession
from shared.canonical import sha256
from shared.claims.manifest import EvidencePolicy
from shared.crypto.command_channel import CommandChannel
from shared.crypto.schedule import draw_epoch, resume_proof, root_key
from shared.crypto.secret import Secret
from shared.errors import BadRequest, Conflict, GputError, ProtocolViolation, Unavailable, VerificationFailed
from shared.service.clock import Clock, Entropy
from shared.wire.base import Wire
from shared.wire.codec import decode_all, encode_all
from shared.wire.gpu import CommandFrame, OpenLife
from shared.wire.gpu_answers import ANSWERS, Failure, LifeOpened
from shared.wire.visit import GpuEvidence

W = TypeVar("W", bound=Wire)
GPU_RESET = "gpu-reset"
"""The code of what tells that the GPU of this life is another boot's now."""


class CommandRefused(GputError):
    """The GPU refused a command of a batch; what ran before it stays."""

    status, default_code, title = 409, "gpu-refused", "The GPU refused"


@dataclass(frozen=True)
class GpuRoom:
    """What the operator trusts of GPUs."""

    trust: GpuTrust
    allow_emulated: bool


@dataclass(frozen=True)
class Batch:
    """Answers in the order of the commands, and the bulk bytes that came with them."""

    answers: list[Any]
    bulk: list[bytes]

    def answer(self, index: int, kind: type[W]) -> W:
        """The answer at `index`, which must be of `kind`. Raises: VerificationFailed."""
        value = self.answers[index]
        if not isinstance(value, kind):
            raise VerificationFailed("The GPU gave another kind of answer than was asked for", code="answer-mismatch",
                                     expected=kind.__name__, got=type(value).__name__)  # fmt: skip
        return value

    def of(self, kind: type[W]) -> W:
        """The first answer of `kind`. Raises: VerificationFailed: there is none."""
        for value in self.answers:
            if isinstance(value, kind):
                return value
        raise VerificationFailed("The GPU did not give an answer that was asked for", code="answer-mismatch",
                                 expected=kind.__name__)  # fmt: skip


@dataclass(frozen=True)
class Opening:
    """How a life is to be opened. `resume` is None for a fresh GPU, which is wiped first."""

    number: int
    boot_counter: int
    resume: Secret | None


class GpuLife:
    """A life that stands: commands, draws, evidence. One batch at a time."""

    def __init__(
        self, link: AgentLink, session: SpdmSession, opening: Opening, room: GpuRoom, policy: EvidencePolicy,
        clock: Clock, entropy: Entropy, statement_certificate: bytes,
    ) -> None:  # fmt: skip
        self.link = link
        self.number = opening.number
        self.boot_counter = opening.boot_counter
        self._spdm, self._room, self._policy = session, room, policy
        self._clock, self._entropy = clock, entropy
        self._certificate = statement_certificate
        self.master = Secret(session.take_export_master_secret())
        self._channel = CommandChannel(self.master.reveal(), self.number, "orchestrator")
        self._root = Secret(root_key(self.master.reveal(), self.number))
        # Frames are counted, and SPDM records are: two of one kind at once would be out of order. One of each may be under way: the GPU
        # ends a poll early when an SPDM message comes, and a holder that opens its channel does not wait for a training's end.
        self._frames, self._records = asyncio.Lock(), asyncio.Lock()
        # Held while the GPU is at a holder's port: the orchestrator's port answers nobody then.
        self.home = asyncio.Lock()
        self.statement_key: Any = None
        self._broken: Conflict | None = None

    # ------------------------------------------------------------ commands

    async def batch(
        self,
        commands: Sequence[Wire],
        bulk: Sequence[bytes] = (),
        *,
        behind: Callable[[], Awaitable[None]] | None = None,
    ) -> Batch:
        """Run a batch.

        Args:
            behind: waits until the frame may leave; it is sealed before.

        Raises:
            What `behind` raises: the life is over, for the frame's number is used up.
            CommandRefused: the GPU refused one of them. VerificationFailed: it answered something else.
            Unavailable, Conflict: no answer of the GPU's; the life is over, another may stand.
        """
        async with self._frames:
            n, ciphertext, records = self._channel.seal(encode_all(list(commands)), bulk)
            frame = CommandFrame(life=self.number, n=n, ct=ciphertext, bulk=records)
            if behind is not None:
                await behind()
            with _only_sealed_words_count():
                answer = await self.link.commands(frame)
                payload, plain = self._channel.open(answer.life, answer.n, answer.ct, answer.bulk)
        answers = decode_all(ANSWERS, payload)
        last = answers[-1] if answers else None
        if isinstance(last, Failure):
            raise CommandRefused(f"{commands[len(answers) - 1].__class__.__name__}: {last.detail}", code=last.code)
        if len(answers) != len(commands):
            raise VerificationFailed("The GPU answered another number of commands", code="answer-mismatch",
                                     expected=str(len(commands)), got=str(len(answers)))  # fmt: skip
        return Batch(answers, plain)

    def draw(self, epoch: int, ours: bytes, theirs: bytes) -> Secret:
        """VS_e of a new epoch; the root key moves on and the old one is dropped."""
        secret, following = draw_epoch(self._root.reveal(), epoch, ours, theirs)
        self._root = Secret(following)
        return Secret(secret)

    def close(self) -> None:
        """Forget every key of this life; whoever waits for evidence hears that it is over."""
        self._broken = self._broken or Conflict("This life on the GPU is over", code="channel-broken")
        self._channel.erase()
        self._root = self.master = Secret(b"")

    # ------------------------------------------------------------ evidence

    async def evidence(self, challenge: bytes, signing_key: bytes, epoch: int) -> GpuEvidence:
        """Fresh measurements inside the SPDM session, over a nonce that names challenge, session, epoch and signing key.

        Raises:
            Conflict: code `channel-broken`: the life is over, or will be.
        """
        nonce = gpu_nonce(challenge, self._spdm.th2, epoch, signing_key)
        report = await self._report(nonce)
        return GpuEvidence(
            report=b64encode(report).decode(), chain=self._spdm.chain_pem, challenge=challenge.hex(),
            th2=self._spdm.th2.hex(), epoch=epoch, statement_key=b64encode(self._certificate).decode(),
            ocsp=tuple(b64encode(response).decode() for response in self._room.trust.ocsp_responses()),
        )  # fmt: skip

    async def _report(self, nonce: bytes) -> bytes:
        async with self._records:
            self.require_whole()  # it may be over since this waited, for the GPU to come home or for its turn
            try:
                with _only_sealed_words_count():
                    return self._spdm.parse_measurements(await self.link.spdm(self._spdm.request_measurements(nonce)))
            except Conflict as error:
                self._broken = error
                raise

    async def require_up(self) -> str | None:
        """The GPU answers, and has not been reset since this life was opened. Anybody could say so: it proves nothing, and may end a life.

        Returns:
            The port at which it says it is, None: at nobody's.

        Raises:
            Unavailable: it does not answer; code `gpu-reset`: what this life put into it is gone. Conflict: somebody refuses in its place.
        """
        facts = await self.link.facts()
        if (boot := facts.boot_counter) != self.boot_counter:
            raise Unavailable(
                "The GPU was reset while a holder had it", code=GPU_RESET, remedy="Nothing: the visit is repeated.",
                expected=f"boot {self.boot_counter}", got=f"boot {boot}",
            )  # fmt: skip
        return facts.port

    def require_whole(self) -> None:
        """This life is not over, and nobody has found its SPDM session broken while asking for evidence: a holder's channel hears of that,
        not who travels.

        Raises:
            Conflict: as the GPU said it, or code `channel-broken`.
        """
        if self._broken is not None:
            raise self._broken

    async def attest(self, signing_key: bytes, epoch: int, device: str | None) -> tuple[VerifiedGpu, GpuEvidence]:
        """Ask for evidence of our own and believe it only after verification.

        Args:
            device: the GPU (PDI, hex) that this session began with; None in its first life.

        Raises:
            VerificationFailed, BadRequest: evidence, policy or statement key; `gpu-device`: a genuine GPU, but another one.
            Conflict: as `evidence`.
        """
        challenge = self._entropy(32)
        evidence = await self.evidence(challenge, signing_key, epoch)
        nonce = gpu_nonce(challenge, self._spdm.th2, epoch, signing_key)
        policy = GpuPolicy.of(self._policy, allow_emulated=self._room.allow_emulated, device=device)
        verified = await asyncio.to_thread(
            verify_gpu_evidence, b64decode(evidence.report), self._spdm.chain_pem, nonce=nonce, trust=self._room.trust, policy=policy,
            at=self._clock(),
        )  # fmt: skip
        if not self._certificate:  # a GPU that can travel has one
            raise VerificationFailed("The GPU has no certified statement key", code="no-statement-key")
        self.statement_key = verify_statement_key(verified, self._certificate)
        return verified, evidence

    async def open(self) -> LifeOpened:
        """The life's first command; from here on bulk records can flow.

        Raises:
            VerificationFailed: the GPU is in another life, boot or session than it should be (`unexplained-life`).
        """
        opened = (await self.batch([OpenLife()])).answer(0, LifeOpened)
        expected = (self.number, self.boot_counter)
        if (opened.life, opened.boot_counter) != expected:
            raise VerificationFailed(
                "The GPU is in another life than this orchestrator opened", code="unexplained-life",
                expected=f"life {expected[0]} boot {expected[1]}", got=f"life {opened.life} boot {opened.boot_counter}",
            )  # fmt: skip
        self._channel.set_masks(opened.h2d_iv_mask, opened.d2h_iv_mask)
        return opened


@contextmanager
def _only_sealed_words_count() -> Iterator[None]:
    """What the GPU says comes sealed. A refusal in clear, and an answer that does not open, were made on the way: by who may break a
    life, as by cutting the line, but not a session.

    Raises:
        Conflict: code `channel-broken`.
    """
    with in_clear("The channel to the GPU broke", code="channel-broken"):
        yield


async def open_spdm(link: AgentLink, opening: Opening, signing_key: bytes, entropy: Entropy) -> SpdmSession:
    """The SPDM exchange of one life, up to FINISH.

    Raises:
        VerificationFailed, ProtocolViolation: the responder refused (a wrong resume proof) or its messages fail. Unavailable.
    """
    requester = SpdmRequester(
        entropy=entropy,
        signing_key_digest=sha256(signing_key),
        life=0 if opening.resume is None else opening.number,
        resume=_prover(opening),
    )
    message: bytes | None = requester.start()
    while message is not None:
        message = requester.feed(await link.spdm(message))
    return requester.session


def _prover(opening: Opening) -> Callable[[bytes, bytes], bytes] | None:
    secret = opening.resume
    if secret is None:
        return None
    return lambda random, public: resume_proof(secret.reveal(), opening.number, opening.boot_counter, random, public)


def refused_resume(error: GputError) -> bool:
    """Whether opening failed because the GPU said no, and not because nobody answered."""
    return isinstance(error, VerificationFailed | ProtocolViolation | BadRequest)
