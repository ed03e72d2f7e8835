"""Refused requests have a limit per address; whoever is let in has none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import NotAuthenticated, TooManyRefused
from shared.service.app import create_service_app, service_state
from shared.service.logging import configure_logging
from shared.service.problem_reader import error_of
from shared.service.refusals import MAX_ADDRESSES, Refusals
from shared.service.settings import ServiceSettings
from tests.service.bulk_server import all_of, answer, serving


class Watch:
    """A clock that stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def service(folder: Path, watch: Watch, **settings: float) -> FastAPI:
    made = ServiceSettings(data_dir=folder, **{"refusals_per_s": 2.0, "refusals_burst": 5, **settings})  # type: ignore[arg-type]
    app = create_service_app("limited", "1", settings=made, clock=watch)

    @app.get("/v1/open")
    async def let_in() -> dict[str, bool]:
        return {"in": True}

    @app.get("/v1/shut")
    async def refused() -> None:
        raise NotAuthenticated("no")

    return app


def caller(app: FastAPI, address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app, client=(address, 9)), base_url="http://limited")


async def test_who_is_refused_too_often_is_not_heard_for_a_while(tmp_path: Path) -> None:
    watch = Watch()
    app = service(tmp_path, watch)
    async with caller(app, "10.0.0.1") as hostile, caller(app, "10.0.0.2") as honest:
        assert [(await hostile.get("/v1/shut")).status_code for _ in range(7)] == [401] * 5 + [429] * 2
        unheard = await hostile.get("/v1/open")
        assert (unheard.status_code, unheard.headers["retry-after"]) == (429, "1")
        error = error_of(429, unheard.content, "limited")
        assert isinstance(error, TooManyRefused)
        assert "refusals_per_s" in (error.remedy or "")
        assert (await hostile.get("/livez")).status_code == 200
        assert [(await honest.get("/v1/open")).status_code for _ in range(50)] == [200] * 50
        watch.now += 1.0
        assert [(await hostile.get("/v1/shut")).status_code for _ in range(3)] == [401, 401, 429]
        watch.now += 60.0
        assert [(await hostile.get("/v1/open")).status_code for _ in range(20)] == [200] * 20


async def test_the_limit_can_be_turned_off(tmp_path: Path) -> None:
    app = service(tmp_path, Watch(), refusals_per_s=0.0)
    async with caller(app, "10.0.0.1") as hostile:
        assert {(await hostile.get("/v1/shut")).status_code for _ in range(50)} == {401}


def test_memory_is_bounded_and_the_quiet_are_forgotten_first() -> None:
    refusals = Refusals(1.0, 1, Watch())
    for number in range(MAX_ADDRESSES + 10):
        refusals.answered(f"a{number}", 401)
    assert refusals.wait_s("a0") == 0
    assert refusals.wait_s(f"a{MAX_ADDRESSES + 9}") == 1
    assert len(refusals._buckets) == MAX_ADDRESSES


@given(st.lists(st.tuples(st.floats(-50, 50), st.sampled_from([200, 401, 404, 422])), max_size=60))
def test_never_more_refusals_than_burst_and_rate_allow(story: list[tuple[float, int]]) -> None:
    watch = Watch()
    refusals, counted, latest = Refusals(0.5, 4, watch), 0, watch.now
    gained = 0.0
    for step, status in story:
        watch.now += step
        gained += max(0.0, step)
        latest = max(latest, watch.now)
        if refusals.wait_s("x") == 0:
            refusals.answered("x", status)
            counted += status in (401, 422)
    assert counted <= 4 + 0.5 * gained + 1


@pytest.mark.parametrize("status", [200, 404, 409, 503])
def test_what_honest_clients_meet_costs_nothing(status: int) -> None:
    refusals = Refusals(1.0, 1, Watch())
    for _ in range(100):
        refusals.answered("x", status)
    assert refusals.wait_s("x") == 0


async def test_what_never_became_a_request_counts_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Heads that nobody can parse had no limit, stood in no metric, and were logged without saying whose they were."""
    watch, log = Watch(), io.StringIO()
    app = service(tmp_path, watch)
    configure_logging("info", "json", log)
    try:
        async with serving(all_of, unparsed=service_state(app).unparsed) as server:
            for said, status in [(b"no HTTP at all\r\n\r\n", 400)] * 4 + [
                (b"GET / HTTP/1.1\r\nx: " + b"y" * 140_000, 431)
            ]:
                async with server.connected() as (reader, writer):
                    writer.write(said)
                    assert (await answer(reader))[0] == status
    finally:
        configure_logging("warning", "json")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["address"], line["status"]) for line in lines if line["event"] == "refused unparsed"] == [
        ("127.0.0.1", 400)
    ] * 4 + [("127.0.0.1", 431)]
    assert "Invalid HTTP request" not in log.getvalue() + caplog.text
    async with caller(app, "127.0.0.1") as hostile, caller(app, "10.0.0.2") as honest:
        assert (await hostile.get("/v1/open")).status_code == 429
        assert (await honest.get("/v1/open")).status_code == 200
        counted = (await honest.get("/metrics")).text
    assert 'gput_http_requests_total{method="other",route="none",status="400"} 4.0' in counted
    assert 'gput_http_requests_total{method="other",route="none",status="431"} 1.0' in counted
