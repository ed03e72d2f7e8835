"""The Python client: `AsyncClient` and `Client`, the same names. Attests the orchestrator before anything else is said to it,
and takes no answer that it did not sign.

Every call is an RFC 9421 signed request. Errors are the family of `shared.errors`, with the service's own code and remedy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gput.api import Api
from gput.trust import UNATTESTED, Trust, Unattested
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError
from shared.service.clock import Clock, system_clock
from shared.service.http import PeerClient, Peers

if TYPE_CHECKING:
    from gput.believed import Belief
    from gput.rooms import AsyncGpus, AsyncParties, AsyncPrograms, AsyncReceipts, AsyncSessions
    from gput.waiting import Client
    from shared.attestation.orchestrator_proof import AttestedOrchestrator

__all__ = ["UNATTESTED", "AsyncClient", "Client", "Trust"]
REMEDY = "Say trust=Trust(folder), or trust=UNATTESTED to ask nothing of it."


class AsyncClient(Api):
    """One party's client of one orchestrator.

    Args:
        url: the orchestrator's base URL; of an orchestrator and its standby, both, comma-separated.
        key: the party's Ed25519 key, or the file that holds it.
        trust: whom you believe to be the orchestrator: it is attested before the first request, and signs its answers. `UNATTESTED`:
            neither is asked of it. Without either every call is refused (`no-trust`).
        peers: another way to reach services, for instance inside one process; closed with the client.
        clock: seconds since 1970, written into every signature; the orchestrator refuses one that differs much from its own.

    Raises:
        ConfigurationError `no-trust`: `trust` is something else, for instance the name of a folder. Also of the key's file.
    """

    def __init__(
        self, url: str, key: PartyKey | Path | str, *, trust: Trust | Unattested | None = None, peers: Peers | None = None,
        clock: Clock = system_clock,
    ) -> None:  # fmt: skip
        self._decision, self._believed = trust, _believed(trust)
        self._belief: Belief | None = None
        super().__init__(url, key, peers=peers, clock=clock)

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
        if self._belief is None:
            raise _undecided()
        return await self._belief.attest()

    def _reached(self, url: str) -> PeerClient:
        if self._believed is None:
            return super()._reached(url)
        from gput.believed import Belief  # only now: most commands are told of nobody to believe

        self._belief = Belief(self._believed, self._key, self._peers, self._clock, self._entropy)
        return self._belief.peer(url)

    async def _to(self) -> PeerClient:
        self._decided()
        return self._peer

    def _decided(self) -> None:
        if self._decision is None:
            raise _undecided()


def _believed(trust: object) -> Trust | None:
    """Whom to believe, if anybody. What is neither of the three is refused: taken for UNATTESTED it would have everybody believed."""
    if trust is None or isinstance(trust, Trust):
        return trust
    if isinstance(trust, str) and trust == UNATTESTED:
        return None
    raise ConfigurationError(
        f"trust= is a {type(trust).__name__}, which says of nobody that this client may believe him", code="no-trust", remedy=REMEDY
    )  # fmt: skip


def _undecided() -> ConfigurationError:
    return ConfigurationError(
        "nobody said whom this client may believe to be the orchestrator", code="no-trust",
        remedy=REMEDY,
    )  # fmt: skip


def __getattr__(name: str) -> type:
    # The synchronous client stands on this module; whoever needs only this one does not load it.
    if name == "Client":
        from gput.waiting import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
