"""The holder's application: operator's API in front, runner behind. `create_app` works in one process with other services, too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version

from fastapi import FastAPI

from data_holder import ui
from data_holder.api import datasets, proofs, records, requests, tokens
from data_holder.api.access import admit
from data_holder.assembly import Holder, assemble, lay_foundation
from data_holder.channel import Verifier
from data_holder.metrics import LinkCollector, VisitMetrics
from data_holder.settings import HolderSettings
from shared.canonical import sha256
from shared.errors import GputError, Unavailable
from shared.service.app import add_routes, create_service_app, service_state
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.cursors import Cursors
from shared.service.data_dir import Room
from shared.service.evidence import EvidenceProvider
from shared.service.http import Peers
from shared.service.logging import get_logger
from shared.service.migrations import upgrade
from shared.service.replay import ReplayWindow
from shared.service.signatures import KnownKey
from shared.service.state import Check
from shared.service.store import Store

_log = get_logger("data_holder")


def create_app(
    settings: HolderSettings, base_url: str | None = None, *, clock: Clock = system_clock, entropy: Entropy = system_entropy,
    peers: Peers | None = None, verifier: Verifier | None = None, evidence: EvidenceProvider | None = None,
) -> FastAPI:  # fmt: skip
    """The application; its lifespan runs the holder.

    Args:
        base_url: the address under which operators sign requests.
        peers, verifier, evidence: other doors to the world, for services that share a process.

    Raises:
        ConfigurationError: settings, identity, tokens, policy, trust folder or database are not usable.
    """
    foundation = lay_foundation(settings, entropy, verifier=verifier, evidence=evidence)
    upgrade(settings.store_url, "data_holder")
    store = Store(settings.store_url)
    engine = _Engine()

    async def known(fingerprint: str) -> KnownKey | None:
        return foundation.operators.find(fingerprint) if foundation.operators is not None else None

    app = create_service_app(
        "gput data holder", version("gpu-travelling"), settings=settings, store=store, lifespan=engine.lifespan,
        checks={"data_dir": Room(settings.data_dir).check, **engine.checks()}, keys=known,
        replay=ReplayWindow(store, clock), base_url=base_url, clock=clock, entropy=entropy, admit=admit,
    )  # fmt: skip
    state = service_state(app)
    # Under a key that only this identity can make, so that cursors outlive a restart.
    state.cursors = Cursors(lambda: sha256(foundation.key.sign("gput/cursor-key", b"")))
    holder = assemble(
        foundation, store, peers or Peers(entropy=entropy, traced=state.tracing is not None), state.stopping, clock=clock,
        entropy=entropy, watch=VisitMetrics(state.registry, state.tracing, clock).reported,
    )  # fmt: skip
    engine.holder = app.state.holder = holder
    state.registry.register(LinkCollector(holder))
    for router in (datasets.router, requests.router, proofs.router, records.router, tokens.router, ui.router):
        add_routes(app, router)
    return app


class _Engine:
    """The runner's task inside the application's life, and what readiness says of it."""

    holder: Holder

    def __init__(self) -> None:
        self._running: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Run the holder; at the end wait for what is in flight and close the links."""
        await self.holder.catalogue.open()
        await self.holder.replies.open()
        self._running = asyncio.create_task(_run(self.holder))
        try:
            yield
        finally:
            self._running.cancel()
            await asyncio.wait([self._running])  # how it ended is in the log
            await asyncio.to_thread(self.holder.reads.close)
            self.holder.visits.disconnect()
            await self.holder.peers.close()
            await self.holder.foundation.guest.aclose()

    def checks(self) -> dict[str, Check]:
        """What must hold for the holder to serve."""
        return {
            "journal": self.journal_is_open, "runner": self.runner_runs,
            "orchestrator": lambda: self.holder.runner.listening.check(),
        }  # fmt: skip

    async def journal_is_open(self) -> None:
        """Raises: Unavailable."""
        if not (self.holder.ledger.is_open and self.holder.catalogue.is_open):
            reason = (
                f"{self._why}; its log says more" if self._has_stopped else ": the quoting enclave has not answered"
            )
            raise Unavailable(f"the journal is locked{reason}", code="journal-locked")

    async def runner_runs(self) -> None:
        """Raises: Unavailable."""
        if self._has_stopped:
            raise Unavailable(f"the holder has stopped serving{self._why}; its log says more", code="runner-stopped")

    @property
    def _has_stopped(self) -> bool:
        return self._running is None or self._running.done()

    @property
    def _why(self) -> str:
        """The code of what ended it: all that is for everybody to read."""
        ended = self._running is not None and self._running.done() and not self._running.cancelled()
        error = self._running.exception() if self._running is not None and ended else None
        return f" ({error.code})" if isinstance(error, GputError) else ""


async def _run(holder: Holder) -> None:
    """The runner, and one clear line when it ends by a fault: the API stays up so that the operator can read why."""
    try:
        await holder.runner.run()
    except GputError as error:
        _log.error("the holder stopped serving", code=error.code, detail=error.detail, remedy=error.remedy)
        raise
    except Exception:
        _log.exception("the holder stopped serving because of a bug")
        raise
