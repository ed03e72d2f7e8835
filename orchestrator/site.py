"""What one orchestrator process has from start to stop, and how a term of leading is made from it. Knows every part, no protocol step."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.api.deps import Orchestrator
from orchestrator.files import remembered, sweep
from orchestrator.gpu_session.life import GpuRoom
from orchestrator.holders.arrivals import Arrivals
from orchestrator.holders.channels import CpuRoom
from orchestrator.holders.inbox import Inboxes
from orchestrator.lease.keeper import Lease, SharedLease, SoleLease
from orchestrator.lease.rows import Claimant
from orchestrator.library import Library
from orchestrator.runner.house import House
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.fetches import Fetches
from orchestrator.sessions.heritage import Heritage
from orchestrator.sessions.keyring import CvmKeys, Keyring
from orchestrator.sessions.watching import Watchers
from orchestrator.settings import OrchestratorSettings
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from shared.service.changes import Stopping
from shared.service.clock import Clock, Entropy
from shared.service.cursors import Cursors
from shared.service.guest import Guest
from shared.service.http import Peers
from shared.service.idempotency import Replies
from shared.service.logging import get_logger
from shared.service.metrics import Failures
from shared.service.replay import ReplayWindow
from shared.service.signatures import SignedAuth
from shared.service.store import Store
from shared.service.trouble import Trouble

ENCLAVE_PATIENCE_S = 30.0
ENCLAVE_PAUSE_S = 0.2
HOLDER_BYTES = 16
_log = get_logger("orchestrator")


def holder(settings: OrchestratorSettings, entropy: Entropy) -> str:
    """This process's name in the lease. data_dir is locked by it: whoever had the name before does not run any more.

    Raises:
        Unavailable: data_dir cannot be written.
    """
    return remembered(settings.data_dir / "lease-holder", lambda: entropy(HOLDER_BYTES).hex())


@dataclass
class Site:
    """One process. `terms` counts those that it began; `recover`: it may follow another measurement that did not let go of its lease."""

    settings: OrchestratorSettings
    store: Store
    library: Library
    identity: PartyKey
    guest: Guest
    trust: tuple[CpuRoom, GpuRoom]
    replay: ReplayWindow
    clock: Clock
    entropy: Entropy
    timer: Callable[[], float]
    recover: bool = False
    terms: int = 0
    watchers: Watchers = field(default_factory=Watchers)
    distrust: Failures = field(default_factory=Failures)

    def lease(self) -> Lease:
        """The deployment's lease, which fences every write from here on; on SQLite there is one orchestrator, and nothing to share."""
        if self.store.dialect == "sqlite":
            return SoleLease()
        name = holder(self.settings, self.entropy)
        who = Claimant(name, self.identity.fingerprint, self.settings.lease_s)
        return SharedLease(self.store, who, self.timer, recover=self.recover)

    async def build(self, peers: Peers, ended: Stopping, lease: Lease) -> tuple[Orchestrator, Cursors]:
        """The parts of a term.

        Raises:
            Unavailable: database or quoting enclave. ConfigurationError: `standby-differs`.
        """
        settings, clock, entropy = self.settings, self.clock, self.entropy
        if self.terms:  # another may have led meanwhile
            await self.guest.begin_again()
            await self.replay.open()
        self.terms += 1
        self.library.parties.changes += 1  # what was remembered of keys is of another's term
        journal_key = await self._derived("gput/journal")
        await lease.sealed(hmac.digest(journal_key.reveal(), b"gput/lease/1", "sha256"))
        sweep(settings.files_dir)
        secrets, sealing = await self._derived("gput/session-secrets"), await self._derived("gput/session-keys")
        keyring = Keyring(CvmKeys(journal_key, secrets, sealing), entropy)
        heritage = Heritage(self.store, keyring, self.library.parties, settings.session_folder, entropy)
        catalogue = Catalogue(self.store, keyring, self.library, heritage, clock, ended, self.watchers.tell)
        cpu, gpu = self.trust
        auth = SignedAuth(self.identity, clock, entropy)
        house = House(
            settings=settings, store=self.store, catalogue=catalogue, heritage=heritage, library=self.library,
            inboxes=Inboxes(clock, ended), arrivals=Arrivals(), identity=self.identity, guest=self.guest, cpu=cpu, gpu=gpu,
            keyring=keyring, fetches=Fetches(self.store, keyring.journal_key, clock), agent=peers.peer(settings.agent_url, "GPU agent"),
            platform=peers.peer(settings.platform_url, "platform", auth=auth), clock=clock, entropy=entropy, timer=self.timer,
            distrust=self.distrust,
        )  # fmt: skip
        replies = Replies(self.store, clock)
        await replies.open()
        return Orchestrator(house, self.store, Supervisor(house), replies), Cursors(journal_key.reveal)

    async def _derived(self, label: str) -> Secret:
        """A key bound to this CVM's measurement; the quoting enclave may still be starting."""
        deadline, away = time.monotonic() + ENCLAVE_PATIENCE_S, Trouble(_log, "waiting for the quoting enclave")
        while True:
            try:
                key = await self.guest.derived_key(label)
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise
                away.met(error)
                await asyncio.sleep(ENCLAVE_PAUSE_S)
            else:
                away.over()
                return key
