"""Whom a client believes at each address of its orchestrator: attested there first, and then every answer signed by what was attested.

What an answer must be follows from what was asked, never from what came: only who asks for a stream takes one unsigned, and only a good
one. Knows no path but the proof's, and no view.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2

from gput.trust import NotBelieved, not_believed
from shared.crypto.signing import PartyKey, fingerprint
from shared.errors import BadRequest, GputError, NotAuthenticated, Unavailable, VerificationFailed
from shared.service.answers import Answer, NotItself, refusal_body
from shared.service.clock import Clock, Entropy
from shared.service.http import PeerClient, Peers
from shared.service.plain_client import Call, PlainClient
from shared.service.problem_reader import PASSING, error_of, retry_after_s
from shared.service.signatures import SignedAuth
from shared.service.signed_answers import ACCEPT_ANSWER, ACCEPT_HEADER, AnswerParts, check_answer, signer_of

if TYPE_CHECKING:
    from gput.trust import Trust
    from shared.attestation.orchestrator_proof import AttestedOrchestrator

NAME = "orchestrator"
PROOF = "/v1/attestation"
REFUSED = 300
"""The least status that is no good answer."""
LATER = frozenset({408, 429, 504})
"""What is said of a request that took too long, or of too many: the peer may be at work on it, so the same address is not asked again."""


class _Unproven(NotItself, httpx2.ConnectError):
    """It could not be asked what it is, so nothing else was sent."""


class _Silent(NotItself, httpx2.ReadTimeout):
    """As `_Unproven`, and it took all the time that there was."""


class _InItsPlace(NotItself, httpx2.ReadError):
    """Something before it answered, or it can no more be asked what it is: nobody knows what became of the request."""


class _Later(NotItself, httpx2.ReadTimeout):
    """As `_InItsPlace`, with a word not to ask the same again here at once: it may still be at work, or was asked too often."""


class Belief:
    """The addresses of one client's orchestrator. `key`: the client's own, which proofs name."""

    def __init__(self, trust: Trust, key: PartyKey, peers: Peers, clock: Clock, entropy: Entropy) -> None:
        self._trust, self._key, self._peers = trust, key, peers
        self._clock, self._entropy = clock, entropy
        self._auth = SignedAuth(key, clock, entropy)
        self._addresses: list[Believed] = []
        self.last: Believed | None = None

    def peer(self, urls: str) -> PeerClient:
        """The client of these addresses, comma-separated. Raises: BadRequest: one of them is none."""
        return self._peers.peer(urls, NAME, around=self._at)

    def _at(self, address: str, client: PlainClient) -> Believed:
        plain = self._peers.peer(address, NAME, auth=self._auth)
        self._addresses.append(Believed(address, client, self._auth, plain, self))
        return self._addresses[-1]

    async def attest(self) -> AttestedOrchestrator:
        """Have it proven anew, where it answered last, or else where it answers. Raises: as `prove`."""
        refused: list[Unavailable] = []
        for there in sorted(self._addresses, key=lambda one: one is not self.last):
            try:
                return await there.attest()
            except Unavailable as error:
                refused.append(error)
        raise refused[0]

    async def prove(self, plain: PeerClient) -> AttestedOrchestrator:
        """What answers there, attested over a nonce of one's own.

        Raises:
            Unavailable. NotAuthenticated: so it says of this client's key. NotBelieved: the check that does not stand. ConfigurationError:
                the client's own trust folder.
        """
        from pydantic import ValidationError

        from shared.claims.shape import first_fault
        from shared.wire.attestation import OrchestratorProof

        nonce = self._entropy(32).hex()
        try:
            proof = OrchestratorProof.model_validate(await plain.post_json(PROOF, {"nonce": nonce}))
        except ValidationError as error:
            raise _no_proof(first_fault(error)) from None
        except (Unavailable, NotAuthenticated):
            raise
        except GputError as error:
            # Whoever it is has proven nothing: what it says of anything else ("not found", "not permitted") is nothing to act on.
            raise _no_proof(error.detail) from error
        caller, at = self._key.fingerprint, self._clock()
        try:
            return await asyncio.to_thread(self._trust.verify, proof, nonce=nonce, caller=caller, at=at)
        except VerificationFailed as error:
            raise not_believed(error) from error
        except (
            BadRequest
        ) as error:  # what it sent is no statement, which nobody is to take for a word on the client's request
            raise _no_proof(error.detail) from error


class Believed:
    """One address: says nothing to it before it was attested there, and takes nothing from it that it did not sign.

    `client` signs nothing by itself. `plain`: the same address for the proof, which stands by its quote and not by a signature.
    """

    def __init__(self, address: str, client: PlainClient, auth: SignedAuth, plain: PeerClient, belief: Belief) -> None:
        self._address, self._client, self._auth, self._plain = address, client, auth, plain
        self._belief, self._attesting = belief, asyncio.Lock()
        self._attested: AttestedOrchestrator | None = None

    async def attest(self) -> AttestedOrchestrator:
        """Have it proven anew; until it is, nothing from here is believed. Raises: as `Belief.prove`."""
        async with self._attesting:
            self._attested = None
            self._attested = await self._belief.prove(self._plain)
            return self._attested

    async def ask(self, call: Call) -> Answer:
        """As `PlainClient.ask`: an answer of the attested orchestrator to this request, a refusal too.

        Raises:
            NotBelieved: `answer-not-signed`, `answer-signature`, or as `Belief.prove`. httpx2.TransportError: it did not answer.
        """
        attested, sent = await self._before(), self._signed(call)
        answer = await self._client.ask(sent)
        await self._check(attested, sent, answer.status_code, answer.headers, answer.content)
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx2.Response]:
        """As `PlainClient.stream`, from where the orchestrator was attested. What comes is anybody's on the way; a refusal must be signed.

        Raises:
            As `ask`.
        """
        attested, sent = await self._before(), self._signed(call)
        async with self._client.stream(sent) as response:
            if response.status_code >= REFUSED:
                await self._check(attested, sent, response.status_code, response.headers, await refusal_body(response))
            yield response

    async def _before(self) -> AttestedOrchestrator:
        try:
            return await self._proven()
        except Unavailable as error:
            raise (_Silent if error.code == "peer-timeout" else _Unproven)(error) from error

    async def _proven(self, instead_of: AttestedOrchestrator | None = None) -> AttestedOrchestrator:
        """What was attested here; asked for anew, once, where that is what no longer answers."""
        async with self._attesting:
            if self._attested is None or self._attested is instead_of:
                self._attested = None
                self._attested = await self._belief.prove(self._plain)
            return self._attested

    def _signed(self, call: Call) -> Call:
        url = call.url if call.params is None else httpx2.URL(call.url, params=call.params)
        headers = {name.lower(): value for name, value in call.headers.items()} | {ACCEPT_HEADER: ACCEPT_ANSWER}
        body = call.content if isinstance(call.content, bytes) else b"" if call.content is None else None
        headers |= self._auth.fields(call.method, url, headers, body)
        return replace(call, url=url, params=None, headers=headers)

    async def _check(
        self, attested: AttestedOrchestrator, sent: Call, status: int, headers: Mapping[str, str], content: bytes
    ) -> None:
        what = f"{NAME} at {self._address} answered {sent.method} {sent.url.path} with {status}"
        parts = AnswerParts(status, headers, sent.headers["signature"])
        try:
            if signer_of(headers, what) != fingerprint(attested.identity_key):
                # A standby behind the same address, or an identity that was rotated.
                attested = await self._proven(instead_of=attested)
            check_answer(parts, content, key=attested.identity_key, what=what)
        except Unavailable as error:
            raise _InItsPlace(error) from error
        except VerificationFailed as error:
            if error.code == "answer-not-signed" and status in PASSING:
                kind = _Later if status in LATER else _InItsPlace
                raise kind(_not_itself(what, status, headers, content)) from error
            if error.code == "answer-not-signed" and status >= REFUSED:
                said = error_of(status, content, NAME)
                error.got = f"{said.code}: {said.detail}"
            raise not_believed(error) from error
        self._belief.last = self


def _not_itself(what: str, status: int, headers: Mapping[str, str], content: bytes) -> Unavailable:
    """What is said in the end of an outage. A proxy says such a thing by itself; so does an orchestrator that has verified nothing yet."""
    said = error_of(status, content, NAME)
    found = Unavailable(
        f"{what} and without its signature, which counts as no answer", code="peer-unreachable", got=f"{said.code}: {said.detail}",
        remedy=said.remedy or f"Check that {NAME} runs, and what stands before it.",
    )  # fmt: skip
    found.retry_after_s = retry_after_s(headers.get("retry-after", ""))
    return found


def _no_proof(why: str) -> NotBelieved:
    return NotBelieved(
        f"what answers is no orchestrator that proves itself: {why}", code="peer-unintelligible",
        remedy="Check that the address is the orchestrator's own.",
    )  # fmt: skip
