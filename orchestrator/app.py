"""The one place where the parts of an orchestrator are introduced to each other. Knows every part by name, and no step of the protocol."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from fastapi import FastAPI
from pydantic import TypeAdapter

from orchestrator.api import events, holders, library_routes, log, model, parties, sessions, visits
from orchestrator.api.deps import Orchestrator, parts_of
from orchestrator.files import sweep
from orchestrator.gpu_session.life import GpuRoom
from orchestrator.holders.arrivals import Arrivals
from orchestrator.holders.channels import CpuRoom
from orchestrator.holders.inbox import Inboxes
from orchestrator.keys import KnownKeys
from orchestrator.library import Library
from orchestrator.runner.house import House
from orchestrator.runner.supervisor import Supervisor
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.settings import OrchestratorSettings
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuReference, CpuRoots
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.snp_trust import SnpTrust
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, Unavailable
from shared.names import Role
from shared.service.app import add_routes, create_service_app
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.collateral_source import PccsSource
from shared.service.configuration import configuration
from shared.service.cursors import Cursors
from shared.service.data_dir import check_room
from shared.service.evidence import EvidenceProvider, open_provider
from shared.service.guest import Guest
from shared.service.http import Peers
from shared.service.idempotency import Replies
from shared.service.journal import Journal
from shared.service.logging import get_logger
from shared.service.migrations import upgrade
from shared.service.replay import ReplayWindow
from shared.service.rim_fetcher import rim_fetcher
from shared.service.signatures import Caller, SignedAuth
from shared.service.state import BearerResolver, service_state
from shared.service.store import Store

VERSION = "0.1.0"
ENCLAVE_PATIENCE_S = 30.0
_log = get_logger("orchestrator")

ROOMS = (parties, library_routes, sessions, visits, log, events, model, holders)


def create_app(
    settings: OrchestratorSettings, base_url: str | None = None, *, clock: Clock = system_clock,
    entropy: Entropy = system_entropy, timer: Callable[[], float] = time.perf_counter,
    transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None, evidence: EvidenceProvider | None = None,
) -> FastAPI:  # fmt: skip
    """The orchestrator as an application; its lifespan takes up every session that was running.

    Args:
        timer: monotonic seconds, for the durations of a visit's steps.
        transports, evidence: for the in-process world; by default HTTP and what the settings name.

    Raises:
        ConfigurationError: settings, keys, trust folder or schema do not allow a start.
    """
    # Everything on disk that must be right is read first: a wrong path is said at once, not after waiting for a peer.
    trust, bearer = _trust(settings), _bearer(settings.reader_tokens)
    quoting = measured_guest(settings, evidence or _provider(settings))
    upgrade(settings.store_url, "orchestrator")
    sweep(settings.data_dir)
    store = Store(settings.store_url)
    library = Library(store, settings.data_dir / "library", clock)
    keys, replay = KnownKeys(settings.owner_keys, library), ReplayWindow(store, clock)
    identity = PartyKey.load_or_generate(settings.data_dir / "identity.pem")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        peers = Peers(transports=transports, entropy=entropy)
        try:
            parts = await _build(app, settings, store, library, identity, quoting, peers, trust, clock, entropy, timer)
            app.state.orchestrator = parts
            await parts.supervisor.start()
            try:
                yield
            finally:
                service_state(app).stopping.set()  # long-polls end now, not when the runners have stopped
                await parts.supervisor.stop()
        finally:
            await peers.close()
            if evidence is None:
                await quoting.aclose()

    app = create_service_app(
        "orchestrator", VERSION, settings=settings, store=store, lifespan=lifespan, keys=keys.resolve, replay=replay,
        bearer=bearer, base_url=base_url, clock=clock, entropy=entropy,
        checks={"data_dir": lambda: check_room(settings.data_dir), "sessions": lambda: parts_of(app).supervisor.check()},
    )  # fmt: skip
    for room in ROOMS:
        add_routes(app, room.router)
    return app


async def _build(
    app: FastAPI, settings: OrchestratorSettings, store: Store, library: Library, identity: PartyKey,
    quoting: Guest, peers: Peers, trust: tuple[CpuRoom, GpuRoom], clock: Clock, entropy: Entropy, timer: Callable[[], float],
) -> Orchestrator:  # fmt: skip
    stopping = service_state(app).stopping
    journal_key = await _derived(quoting, "gput/journal")
    catalogue = Catalogue(store, Journal(journal_key.reveal), library, clock, stopping)
    auth = SignedAuth(identity, clock, entropy)
    cpu, gpu = trust
    house = House(
        settings=settings, catalogue=catalogue, library=library, inboxes=Inboxes(clock, stopping), arrivals=Arrivals(),
        identity=identity, guest=quoting, sealing_key=await _derived(quoting, "gput/session-secrets"), cpu=cpu, gpu=gpu,
        agent=peers.peer(settings.agent_url, "GPU agent"), platform=peers.peer(settings.platform_url, "platform", auth=auth),
        clock=clock, entropy=entropy, timer=timer,
    )  # fmt: skip
    replies = Replies(store, clock)
    await replies.open()
    service_state(app).cursors = Cursors(journal_key.reveal)
    return Orchestrator(house, store, Supervisor(house), replies)


async def _derived(quoting: Guest, label: str) -> Secret:
    """A key bound to this CVM's measurement; the quoting enclave may still be starting."""
    deadline = time.monotonic() + ENCLAVE_PATIENCE_S
    while True:
        try:
            return await quoting.derived_key(label)
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise
            _log.info("waiting for the quoting enclave", detail=error.detail)
            await asyncio.sleep(0.2)


def _provider(settings: OrchestratorSettings) -> EvidenceProvider:
    return open_provider(
        settings.evidence, token_file=settings.evidence_token_file, sealing_key_file=settings.sealing_key_file
    )


def measured_guest(settings: OrchestratorSettings, quoting: EvidenceProvider) -> Guest:
    """This CVM, which measures how it is configured before it says anything about itself."""
    backend, values = settings.evidence.partition(":")[0], settings.model_dump()
    return Guest(quoting, configuration("orchestrator", backend=backend, trust_dir=settings.trust_dir, settings=values))


def _trust(settings: OrchestratorSettings) -> tuple[CpuRoom, GpuRoom]:
    folder = settings.trust_dir
    if folder is None:
        raise ConfigurationError("No trust folder is set", remedy="Set trust_dir to the installation's trust folder.")
    reference, roots = CpuReference.load(folder / "reference.json"), CpuRoots.load(folder / "cpu-roots.pem")
    kept, source = folder / "collateral", PccsSource(settings.collateral_url) if settings.collateral_url else None
    keeper = CollateralKeeper(CollateralStore.load(kept, roots.certificates), roots, source, kept)
    cpu = CpuRoom(roots, reference, settings.allow_emulated, keeper, SnpTrust.load(folder))
    gpu = GpuRoom(GpuTrust.load(folder, rim_fetcher(settings.rim_service)), settings.allow_emulated)
    return cpu, gpu


def _bearer(path: Path | None) -> BearerResolver | None:
    if path is None:
        return None
    try:
        tokens = TypeAdapter(dict[str, str]).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a JSON object of texts"
        raise ConfigurationError(f"The reader tokens {path} cannot be used: {why}",
                                 remedy="Write {SHA-256 of a token in hex: name} there, or unset reader_tokens.") from None  # fmt: skip

    async def resolve(token: str) -> Caller | None:
        name = tokens.get(hashlib.sha256(token.encode()).hexdigest())
        return None if name is None else Caller("", name, frozenset({Role.AUDITOR}))

    return resolve
