"""The one place where the parts of an orchestrator are introduced to each other. Knows every part by name, and no step of the protocol."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI

from orchestrator import ui
from orchestrator.api import (
    attestation,
    estimates,
    events,
    holders,
    library_routes,
    log,
    model,
    parties,
    recovery,
    sessions,
    submissions,
    visits,
)
from orchestrator.api.deps import Orchestrator
from orchestrator.gpu_session.life import GpuRoom
from orchestrator.holders.channels import CpuRoom
from orchestrator.identity import identity_of
from orchestrator.keys import KnownKeys
from orchestrator.lease.keeper import Lease, prepare_schema
from orchestrator.lease.office import Office
from orchestrator.library import Library
from orchestrator.metrics import HouseCollector, SessionMetrics
from orchestrator.readers import reader_tokens
from orchestrator.sessions.watching import Watchers
from orchestrator.settings import OrchestratorSettings
from orchestrator.site import Site, holder
from orchestrator.tracing import VisitSpans
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuReference, CpuRoots
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.snp_trust import SnpTrust
from shared.errors import ConfigurationError
from shared.names import SessionPhase
from shared.service.answer_signing import SignedAnswers
from shared.service.app import Lifespan, add_routes, create_service_app
from shared.service.callers import admit_body
from shared.service.changes import Stopping
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.collateral_source import PccsSource
from shared.service.configuration import configuration
from shared.service.data_dir import Room
from shared.service.evidence import EvidenceProvider, open_provider
from shared.service.guest import Guest
from shared.service.http import Peers
from shared.service.replay import ReplayWindow
from shared.service.rim_fetcher import rim_fetcher
from shared.service.state import Check, service_state
from shared.service.store import Store

VERSION = "0.1.0"
ROOMS = (
    attestation,
    parties,
    library_routes,
    submissions,
    sessions,
    estimates,
    visits,
    log,
    events,
    model,
    holders,
    recovery,
    ui,
)


def create_app(
    settings: OrchestratorSettings, base_url: str | None = None, *, clock: Clock = system_clock,
    entropy: Entropy = system_entropy, timer: Callable[[], float] = time.perf_counter,
    transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None, evidence: EvidenceProvider | None = None,
    recover: bool = False,
) -> FastAPI:  # fmt: skip
    """The orchestrator as an application; while it leads, it takes up every session that was running.

    Args:
        timer: monotonic seconds, for the durations of a visit's steps.
        recover: lead also where another CVM or measurement led and did not let go of its lease, once that has expired.
        transports, evidence: for the in-process world; by default HTTP and what the settings name.

    Raises:
        ConfigurationError: settings, keys, trust folder or schema do not allow a start.
    """
    # Everything on disk that must be right is read first: a wrong path is said at once, not after waiting for a peer.
    trust, bearer = _trust(settings), reader_tokens(settings.reader_tokens)
    quoting = measured_guest(settings, evidence or _provider(settings))
    store = Store(settings.store_url)
    prepare_schema(store, settings.files_dir, lambda: holder(settings, entropy))
    library = Library(store, settings.files_dir / "library", clock)
    keys, replay = KnownKeys(settings.owner_keys, library), ReplayWindow(store, clock)
    site = Site(
        settings, store, library, identity_of(settings), quoting, trust, replay, clock,
        entropy, timer, recover,
    )  # fmt: skip

    def connect() -> Peers:
        return Peers(transports=transports, entropy=entropy, traced=settings.otlp_endpoint is not None)

    lifespan = _lifespan(site, connect, keeps_evidence=evidence is not None)
    app = create_service_app(
        "orchestrator", VERSION, settings=settings, store=store, lifespan=lifespan, keys=keys.resolve, replay=replay, admit=admit_body,
        bearer=bearer, base_url=base_url, clock=clock, entropy=entropy, gate=lambda path: _office(app).gate(path),
        checks={"data_dir": Room(settings.files_dir).check, **_checks(lambda: _office(app))},
    )  # fmt: skip
    app.add_middleware(SignedAnswers, key=site.identity, clock=clock)  # the outermost: what it signs nobody changes
    _measure(app, site)
    for room in ROOMS:
        add_routes(app, room.router)
    return app


def _measure(app: FastAPI, site: Site) -> None:
    """Count what the sessions' facts say, over all terms of this process."""
    registry, tracing = service_state(app).registry, service_state(app).tracing
    spans = [] if tracing is None else [VisitSpans(tracing).noted]
    site.watchers = Watchers(SessionMetrics(registry).noted, *spans)

    def phases() -> list[SessionPhase]:
        office: Office[Orchestrator] | None = getattr(app.state, "office", None)
        return [] if office is None or office.term is None else office.term.catalogue.phases()

    def lease() -> tuple[bool, int]:
        office: Office[Orchestrator] | None = getattr(app.state, "office", None)
        return (False, 0) if office is None else (office.term is not None, office.losses)

    registry.register(HouseCollector(phases, lease, site.distrust))


def _lifespan(site: Site, connect: Callable[[], Peers], *, keeps_evidence: bool) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        peers, stopping = connect(), service_state(app).stopping
        try:
            lease = site.lease()
            office = app.state.office = Office(lease, lambda ended: _begin(app, site, peers, lease, ended), stopping)
            await office.start()
            try:
                yield
            finally:
                stopping.set()  # long-polls end now, not when the runners have stopped
                await office.stop()
        finally:
            await peers.close()
            if not keeps_evidence:
                await site.guest.aclose()

    return lifespan


def _checks(office: Callable[[], Office[Orchestrator]]) -> dict[str, Check]:
    async def leading() -> None:
        await office().check()

    async def sessions() -> None:
        if (term := office().term) is not None:
            await term.supervisor.check()

    return {"leading": leading, "sessions": sessions}


def _office(app: FastAPI) -> Office[Orchestrator]:
    office: Office[Orchestrator] = app.state.office
    return office


async def _begin(app: FastAPI, site: Site, peers: Peers, lease: Lease, ended: Stopping) -> Orchestrator:
    """A term: everything anew from the database, then every session that was running."""
    parts, cursors = await site.build(peers, ended, lease)
    app.state.orchestrator, service_state(app).cursors = parts, cursors
    try:
        await parts.start()
    except BaseException:
        await parts.abandon()
        raise
    return parts


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
