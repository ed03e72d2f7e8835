"""The Python client: `AsyncClient` and `Client`, the same names. Attests the orchestrator before anything else is said to it.

Every call is an RFC 9421 signed request. Errors are the family of `shared.errors`, with the service's own code and remedy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from gput.api import Api
from gput.trust import UNATTESTED, Trust, Unattested
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, VerificationFailed
from shared.service.clock import Clock, system_clock
from shared.service.http import Peers

if TYPE_CHECKING:
    from gput.rooms import AsyncGpus, AsyncParties, AsyncPrograms, AsyncReceipts, AsyncSessions
    from gput.waiting import Client
    from shared.attestation.orchestrator_proof import AttestedOrchestrator

__all__ = ["UNATTESTED", "AsyncClient", "Client", "Trust"]


class AsyncClient(Api):
    """One party's client of one orchestrator.

    Args:
        url: the orchestrator's base URL; of an orchestrator and its standby, both, comma-separated.
        key: the party's Ed25519 key, or the file that holds it.
        trust: whom you believe to be the orchestrator: it is attested before the first request. `UNATTESTED`: it is not asked. Without
            either every call is refused (`no-trust`).
        peers: another way to reach services, for instance inside one process; closed with the client.
        clock: seconds since 1970, written into every signature; the orchestrator refuses one that differs much from its own.
    """

    def __init__(
        self, url: str, key: PartyKey | Path | str, *, trust: Trust | Unattested | None = None, peers: Peers | None = None,
        clock: Clock = system_clock,
    ) -> None:  # fmt: skip
        super().__init__(url, key, peers=peers, clock=clock)
        self._decision, self._attesting = trust, asyncio.Lock()
        self._believed = trust if isinstance(trust, Trust) else None
        self._attested: AttestedOrchestrator | None = None

    @property
    def sessions(self) -> AsyncSessions:
        """Submit, look at, steer sessions. Raises: ConfigurationError `no-trust`: nobody said whom to believe."""
        from gput.rooms import AsyncSessions

        self._decided()
        return AsyncSessions(self, self._believed)

    @property
    def receipts(self) -> AsyncReceipts:
        """Fetch and verify receipts. Raises: as `sessions`."""
        from gput.rooms import AsyncReceipts

        self._decided()
        return AsyncReceipts(self, self._believed)

    @property
    def programs(self) -> AsyncPrograms:
        """Training programs. Raises: as `sessions`."""
        from gput.rooms import AsyncPrograms

        self._decided()
        return AsyncPrograms(self, self._believed)

    @property
    def parties(self) -> AsyncParties:
        """Who is enrolled. Raises: as `sessions`."""
        from gput.rooms import AsyncParties

        self._decided()
        return AsyncParties(self, self._believed)

    @property
    def gpus(self) -> AsyncGpus:
        """The pool. Raises: as `sessions`."""
        from gput.rooms import AsyncGpus

        self._decided()
        return AsyncGpus(self, self._believed)

    async def attest(self) -> AttestedOrchestrator:
        """Attest the orchestrator now, over a nonce of one's own. The first call of a client does it by itself.

        Raises:
            ConfigurationError `no-trust`: there is nothing to believe. VerificationFailed: the check that does not stand.
        """
        if self._believed is None:
            raise _undecided()
        from pydantic import ValidationError

        from shared.claims.shape import first_fault
        from shared.wire.attestation import OrchestratorProof

        nonce = self._entropy(32).hex()
        answer = await self._peer.post_json("/v1/attestation", {"nonce": nonce})
        caller, at = self._key.fingerprint, self._clock()
        try:
            proof = OrchestratorProof.model_validate(answer)
        except ValidationError as error:
            raise VerificationFailed(
                f"what answers is no orchestrator that proves itself: {first_fault(error)}", code="peer-unintelligible",
                remedy="Check that the address is the orchestrator's own.",
            ) from None  # fmt: skip
        self._attested = await asyncio.to_thread(self._believed.verify, proof, nonce=nonce, caller=caller, at=at)
        return self._attested

    async def _before(self) -> None:
        self._decided()
        if self._believed is not None and self._attested is None:
            async with self._attesting:
                if self._attested is None:
                    await self.attest()

    def _decided(self) -> None:
        if self._decision is None:
            raise _undecided()


def _undecided() -> ConfigurationError:
    return ConfigurationError(
        "nobody said whom this client may believe to be the orchestrator", code="no-trust",
        remedy="Say trust=Trust(folder), or trust=UNATTESTED to ask nothing of it.",
    )  # fmt: skip


def __getattr__(name: str) -> type:
    # The synchronous client stands on this module; whoever needs only this one does not load it.
    if name == "Client":
        from gput.waiting import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
