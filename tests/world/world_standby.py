"""A world with two orchestrators over one PostgreSQL: the same CVM, identity and files, a data_dir each. And freezing one of them.

Knows the in-process world; no test.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import sqlalchemy as sa
import structlog
from fastapi import FastAPI
from sqlalchemy import Connection
from structlog.contextvars import merge_contextvars

from gpu_agent.unit import GpuUnit
from gput.client import UNATTESTED, AsyncClient
from orchestrator.app import create_app as orchestrator_app
from orchestrator.settings import OrchestratorSettings
from shared.errors import Unavailable
from shared.service.app import service_state
from shared.service.evidence import EmulatedProvider
from shared.service.http import Peers
from tests.world.world import OFTEN, PATIENCE_S, UNLIMITED, World, url
from tests.world.world_material import Material
from tests.world.world_service import Incarnation, Service
from tests.world.world_wire import Call, Deliver, Link

FIRST, SECOND = "orchestrator", "standby"
BOTH = f"{url(FIRST)},{url(SECOND)}"
LEASE_S = 30.0
"""Longer than a busy test machine stands still by itself; nobody waits for it (`expire`)."""


class Ice:
    """Stops the first orchestrator: its timer, its database and its calls stand still until it melts, and nobody reaches it.

    `held` has the calls that were just on their way; they arrive when it melts, even if whoever made them is deposed in that moment and
    listens no more: what is on the wire cannot be taken back. With `stop_at` it freezes by itself, with that call on the wire. What
    `let_pass` names gets through all the same: a process that has a last burst of work before it looks at clock or database.
    """

    def __init__(self) -> None:
        self.frozen_at: float | None = None
        self.ahead = 0.0
        self.held: list[Call] = []
        self._passing: Callable[[Call], bool] = lambda call: False
        self._changed = asyncio.Event()
        self._stop: tuple[int, str] | None = None
        self._on_the_wire: list[asyncio.Task[httpx2.Response]] = []

    def stop_at(self, nth: int, path_end: str) -> None:
        """Freeze with the nth call from here on whose path ends so."""
        self._stop = nth, path_end

    def timer(self) -> float:
        return self.ahead + (time.monotonic() if self.frozen_at is None else self.frozen_at)

    def freeze(self) -> None:
        self.frozen_at = time.monotonic()

    def skip(self, seconds: float) -> None:
        """Its timer goes on by so much."""
        self.ahead += seconds

    def melt(self) -> None:
        self.frozen_at = None
        self._changed.set()

    def let_pass(self, path_end: str) -> None:
        """Calls whose path ends so arrive, also those on the wire."""
        self._passing = lambda call: call.path.endswith(path_end)
        self._changed.set()

    # A rider of its store: nothing is sent to the database, which so hears nothing of it.
    def write(self, _connection: Connection) -> None:
        while self.frozen_at is not None:
            time.sleep(0.01)

    def settle(self, *, committed: bool) -> None:
        """Nothing rides along."""

    async def hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if self._stop is not None and call.client == FIRST and call.path.endswith(self._stop[1]):
            left = self._stop[0] - 1
            self._stop = (left, self._stop[1]) if left else None
            if not left:
                self.freeze()
        if self.frozen_at is not None and call.server == FIRST:
            raise httpx2.ConnectError("a machine that stands still takes no connection")
        if self._stands(call):
            self.held.append(call)
            late = asyncio.create_task(self._late(call, deliver))
            self._on_the_wire.append(late)
            return await asyncio.shield(late)
        return await deliver(call)

    def _stands(self, call: Call) -> bool:
        return self.frozen_at is not None and call.client == FIRST and not self._passing(call)

    async def _late(self, call: Call, deliver: Deliver) -> httpx2.Response:
        while self._stands(call):
            self._changed.clear()
            await self._changed.wait()
        return await deliver(call)

    async def arrived(self) -> None:
        """Wait until every held call was taken or refused where it was sent to."""
        await asyncio.gather(*self._on_the_wire, return_exceptions=True)


class PairWorld(World):
    """`orchestrator` starts first and leads; `standby` follows."""

    def __init__(
        self, folder: Path, material: Material, unit: GpuUnit | None, database_url: str, **options: Any
    ) -> None:
        settings = {f"holder-{name}": {"orchestrator_url": BOTH} for name in options.get("holders", material.keys)}
        super().__init__(folder, material, unit, settings=settings, **options)
        self.database_url, self.ice = database_url, Ice()
        self._said: list[MutableMapping[str, Any]] = []
        structlog.configure(
            processors=[merge_contextvars, self._hear],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        )
        self.wire.services[SECOND] = Service(SECOND, lambda incarnation: self._one(SECOND, incarnation, time.monotonic))
        self.wire.hooks.append(self.ice.hook)
        self.wire.patient.add(FIRST)  # a machine that stands still counts no time
        transports = {url(name): Link(self.wire, "owner", name) for name in (FIRST, SECOND)}
        self.owner = AsyncClient(
            BOTH,
            material.keys["owner"],
            trust=UNATTESTED,
            peers=Peers(transports=transports),
            clock=self.clock_of("owner"),
        )

    def _orchestrator(self, incarnation: Incarnation) -> FastAPI:
        app = self._one(FIRST, incarnation, self.ice.timer)
        store = service_state(app).store
        assert store is not None
        store.add_rider(self.ice)
        return app

    def _one(self, name: str, incarnation: Incarnation, timer: Callable[[], float]) -> FastAPI:
        settings = OrchestratorSettings(
            data_dir=self.folder / f"{name}-own", shared_dir=self.folder / "orchestrator", trust_dir=self.folder / "trust",
            database_url=self.database_url, lease_s=LEASE_S, allow_emulated=True, owner_keys=self.folder / "owners",
            agent_url=url("agent"), platform_url=url("platform"), **OFTEN,
            evidence=f"emulated:{url('platform')}/cvms/orchestrator",
            evidence_token_file=self.folder / "cvms" / "orchestrator.token", **UNLIMITED,
        )  # fmt: skip
        token = (self.folder / "cvms" / "orchestrator.token").read_text()
        enclave = Link(self.wire, name, "platform", incarnation)
        return orchestrator_app(
            settings, url(name), clock=self.clock_of(name), timer=timer, transports=self._links(name, incarnation),
            evidence=EmulatedProvider(f"{url('platform')}/cvms/orchestrator", token, transport=enclave),
        )  # fmt: skip

    async def __aenter__(self) -> PairWorld:
        await super().__aenter__()
        await self[SECOND].start()
        return self

    async def __aexit__(self, *end: Any) -> None:
        self.ice.melt()
        await self.ice.arrived()
        await self[SECOND].stop()
        await super().__aexit__(*end)

    async def ask(self, service: str, path: str = "/readyz") -> httpx2.Response:
        """A plain GET at one service."""
        transport = Link(self.wire, "somebody", service)
        async with httpx2.AsyncClient(transport=transport, base_url=url(service)) as http:
            return await http.get(path)

    async def leads(self, service: str, seconds: float = PATIENCE_S) -> None:
        """Wait until it does."""
        deadline = time.monotonic() + seconds
        while (await self.ask(service)).status_code != 200:
            assert time.monotonic() < deadline, self.wire.story()
            await asyncio.sleep(0.05)

    def expire(self) -> None:
        """The database's clock goes on by a lease."""
        self._in_database("UPDATE leases SET expires_at = clock_timestamp()")

    def taken(self, times: int) -> None:
        """The lease was taken so often; else what both said of it."""
        assert int(self._in_database("SELECT token FROM leases")[0]) == times, self._said

    def _hear(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> NoReturn:
        if event.get("component") in ("lease", "office"):
            self._said.append(event)
        raise structlog.DropEvent

    def _in_database(self, statement: str) -> list[Any]:
        engine = sa.create_engine(sa.make_url(self.database_url).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            found = connection.exec_driver_sql(statement)
            values = [*found.scalars()] if found.returns_rows else []
        engine.dispose()
        return values

    @contextmanager
    def database_away(self) -> Iterator[None]:
        """Nobody gets into the database, and who was in is thrown out."""
        name = sa.make_url(self.database_url).database
        with self._elsewhere() as admin:
            admin.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.exec_driver_sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            with self._elsewhere() as admin:
                admin.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    @contextmanager
    def _elsewhere(self) -> Iterator[sa.Connection]:
        parsed = sa.make_url(self.database_url).set(drivername="postgresql+psycopg", database="postgres")
        engine = sa.create_engine(parsed, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield connection
        engine.dispose()

    async def freezes(self, seconds: float = PATIENCE_S) -> None:
        """Wait until the first one has frozen by itself."""
        deadline = time.monotonic() + seconds
        while self.ice.frozen_at is None:
            assert time.monotonic() < deadline, self.wire.story()
            await asyncio.sleep(0.01)

    async def reaches(self, client: str, path_end: str, seconds: float = PATIENCE_S) -> None:
        """Wait until the frozen one stands still with a call whose path ends so."""
        deadline = time.monotonic() + seconds
        while not any(call.path.endswith(path_end) for call in self.ice.held if call.client == client):
            assert time.monotonic() < deadline, self.wire.story()
            await asyncio.sleep(0.01)

    async def says(self, service: str, words: str, seconds: float = PATIENCE_S) -> None:
        """Wait until its readiness says so."""
        deadline = time.monotonic() + seconds
        while words not in (said := (await self.ask(service)).text):
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.05)

    async def patiently(self, session: str, condition: Callable[[Any], Any], seconds: float = PATIENCE_S) -> Any:
        """As `until`, over times in which nobody leads."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return await self.until(session, condition, deadline - time.monotonic())
            except Unavailable:
                assert time.monotonic() < deadline, self.wire.story()
                await asyncio.sleep(0.05)


NewPair = Callable[[], AbstractAsyncContextManager[PairWorld]]
"""Makes such a world: `async with new_pair() as world`."""
