"""What a test run does so that services which have ended go: with FastAPI's next release this is where it shows if it does not any more."""

from __future__ import annotations

import gc
import weakref

import httpx2
from fastapi import FastAPI

from tests import leftovers


class Kept:
    """What a service's routes hold."""


async def served() -> weakref.ref[Kept]:
    """A service that has answered and ended; what is left of it."""
    app, held = FastAPI(), Kept()

    @app.get("/")
    async def route() -> str:
        return type(held).__name__

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://service") as client:
        assert (await client.get("/")).json() == "Kept"
    return weakref.ref(held)


async def test_a_service_that_has_ended_is_let_go_of() -> None:
    left = await served()
    gc.collect()
    assert left() is not None, "FastAPI keeps none any more: tests.leftovers need not clear its caches"
    leftovers.pytest_runtest_teardown()
    gc.collect()
    assert left() is None
