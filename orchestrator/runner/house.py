"""Everything a session's runner is given: stores, peers, trust, keys and doors. Introduces the parts; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.gpu_session.life import GpuRoom
from orchestrator.gpu_session.link import AgentLink
from orchestrator.gpu_session.sealed import SealedSecrets
from orchestrator.holders.arrivals import Arrivals
from orchestrator.holders.channels import CpuRoom
from orchestrator.holders.inbox import Inboxes
from orchestrator.holders.proofs import Prover
from orchestrator.library import Library
from orchestrator.model_file import ModelFile
from orchestrator.platform_link import Mux
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.fetches import Fetches
from orchestrator.sessions.heritage import Heritage
from orchestrator.sessions.keyring import Keyring
from orchestrator.sessions.removals import Removals
from orchestrator.settings import OrchestratorSettings
from shared.crypto.signing import PartyKey
from shared.service.clock import Clock, Entropy
from shared.service.guest import Guest
from shared.service.http import PeerClient
from shared.service.metrics import Failures
from shared.service.store import Store


@dataclass
class House:
    """One orchestrator process."""

    settings: OrchestratorSettings
    store: Store
    catalogue: Catalogue
    heritage: Heritage
    library: Library
    inboxes: Inboxes
    arrivals: Arrivals
    identity: PartyKey
    guest: Guest
    keyring: Keyring
    fetches: Fetches
    cpu: CpuRoom
    gpu: GpuRoom
    agent: PeerClient
    platform: PeerClient
    clock: Clock
    entropy: Entropy
    timer: Callable[[], float]
    distrust: Failures

    def folder(self, session: str) -> Path:
        """A session's files: checkpoints, model."""
        return self.settings.session_folder(session)

    def model(self, session: str) -> ModelFile:
        """The exported model."""
        return ModelFile(self.folder(session), self.keyring.sealing_key(session), session, self.entropy)

    def link(self, gpu: str) -> AgentLink:
        """A GPU's orchestrator port."""
        return AgentLink(self.agent, gpu)

    def mux(self, gpu: str) -> Mux:
        """A GPU's multiplexer."""
        return Mux(self.platform, gpu)

    def prover(self, book: Book, signing_key: PartyKey) -> Prover:
        """Makes the proofs of one life of a session."""
        return Prover(
            book, signing_key=signing_key, identity=self.identity, guest=self.guest, keeper=self.cpu.keeper, clock=self.clock,
            entropy=self.entropy,
        )  # fmt: skip

    @property
    def removals(self) -> Removals:
        """Ended sessions that their owners want gone."""
        return Removals(self.store)

    def sealed(self, session: str) -> SealedSecrets:
        """A session's secrets at rest."""
        return SealedSecrets(self.store, self.keyring.sealing_key(session), session, self.entropy)
