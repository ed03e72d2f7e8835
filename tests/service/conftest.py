"""Fixtures of the service tests: the small service of `service_world`, running."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from shared.service.app import create_service_app
from shared.service.callers import admit_body
from shared.service.idempotency import Replies
from shared.service.replay import ReplayWindow
from shared.service.settings import ServiceSettings
from shared.service.store import Store
from shared.service.tables import METADATA
from tests.service.service_world import BASE_URL, FakeClock, MakeWorld, World, add_routes, bearer, known_keys


@pytest.fixture
def make_world(tmp_path: Path) -> MakeWorld:
    """A context manager that runs the service; entered twice it is a restart on the same database."""
    clock = FakeClock()

    @asynccontextmanager
    async def run() -> AsyncIterator[World]:
        settings = ServiceSettings(data_dir=tmp_path)
        store = Store(settings.store_url)
        replies = Replies(store, clock)

        @asynccontextmanager
        async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
            await replies.open()
            yield

        app = create_service_app(
            "test-service",
            "1.2.3",
            settings=settings,
            store=store,
            lifespan=lifespan,
            keys=known_keys,
            replay=ReplayWindow(store, clock),
            bearer=bearer,
            base_url=BASE_URL,
            admit=admit_body,
            clock=clock,
        )
        world = World(app, clock, store)
        add_routes(app, world, replies, tmp_path)
        bootstrap = Store(settings.store_url)
        await bootstrap.open()
        await bootstrap.write(METADATA.create_all)
        await bootstrap.close()
        async with app.router.lifespan_context(app):
            yield world

    return run


@pytest.fixture
async def world(make_world: MakeWorld) -> AsyncIterator[World]:
    async with make_world() as running:
        yield running
