"""Routes served without the framework behave as if it had served them, and only those whose function asks for nothing else are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from shared.claims.shape import MAX_FIELDS, MAX_PART, MOST_FAULTS
from shared.errors import NotFound
from shared.service.app import add_routes, create_service_app
from shared.service.direct import DirectRoutes, asked, described, document, query
from shared.service.settings import ServiceSettings


class Wanted(BaseModel):
    """A body."""

    count: Annotated[int, Field(ge=1)]


class Sought(BaseModel):
    """A query."""

    after: Annotated[int, Field(ge=0)] = 0


class Parcel(BaseModel, extra="forbid"):
    """A body with another document in it."""

    inside: list[Wanted]


def routes() -> APIRouter:
    router = APIRouter(prefix="/things/{thing}")

    @router.post("/taken", response_class=Response, openapi_extra=described(Wanted))
    async def taken(thing: str, request: Request) -> Response:
        """Direct."""
        if thing == "none":
            raise NotFound("there is no such thing", code="unknown-thing", remedy="Name another.")
        if thing == "broken":
            raise RuntimeError("a fault of ours")
        wanted = await document(request, Wanted)
        return Response(f"{thing} {wanted.count}")

    @router.get("/sought", response_class=Response, openapi_extra=asked(Sought))
    async def sought(thing: str, request: Request) -> Response:
        """Direct, with a query."""
        return Response(f"{thing} {query(request, Sought).after}")

    @router.post("/sent", response_class=Response, status_code=202, openapi_extra=described(Parcel, {"inside": []}))
    async def sent(thing: str, request: Request) -> Response:
        """Direct, and says its status itself."""
        return Response(str(len((await document(request, Parcel)).inside)), status_code=202)

    @router.get("/asked")
    async def plain(thing: str) -> dict[str, str]:
        """Not direct: it asks for no request."""
        return {"thing": thing}

    @router.get("/guarded", dependencies=[Depends(_nobody)], response_class=Response)
    async def guarded(thing: str, request: Request) -> Response:
        """Not direct: what stands before it would be passed by."""
        return Response("in")

    @router.get("/counted/{number}", response_class=Response)
    async def counted(thing: str, number: int, request: Request) -> Response:
        """Not direct: the framework turns text into a number."""
        return Response(str(number + 1))

    return router


async def _nobody() -> None:
    raise NotFound("nobody may")


@pytest.fixture
def client(tmp_path: Path) -> httpx2.AsyncClient:
    app = create_service_app("things", "1", settings=ServiceSettings(data_dir=tmp_path, max_body_bytes=1024))
    add_routes(app, routes())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://t")


@pytest.fixture
def roomy(tmp_path: Path) -> httpx2.AsyncClient:
    """The same with the bodies that a service takes as a rule."""
    app = create_service_app("things", "1", settings=ServiceSettings(data_dir=tmp_path))
    add_routes(app, routes())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://t")


def test_only_what_asks_for_nothing_else_is_direct() -> None:
    direct, router = DirectRoutes(), routes()
    direct.add(router.routes)
    found = {
        route.name: direct.find({"method": method, "path": path}) is not None  # type: ignore[attr-defined]
        for route in router.routes
        for method, path in [
            (next(iter(route.methods)), route.path.format(thing="a", number=1))  # type: ignore[attr-defined]
        ]
    }
    direct_ones = {"taken": True, "sought": True, "sent": True}
    assert found == direct_ones | {"plain": False, "guarded": False, "counted": False}


async def test_answers_errors_and_limits_are_the_services_own(client: httpx2.AsyncClient) -> None:
    async with client:
        done = await client.post("/things/a%20b/taken", json={"count": 2})
        assert (done.status_code, done.text) == (200, "a b 2")
        assert done.headers["x-request-id"].startswith("req-")
        for thing, body, status, code in (
            ("none", b"{}", 404, "unknown-thing"), ("a", b'{"count": 0}', 422, "invalid-request"),
            ("a", b"no JSON", 422, "invalid-request"), ("a", b"x" * 1025, 413, "body-too-large"), ("broken", b"", 500, "internal"),
        ):  # fmt: skip
            refused = await client.post(f"/things/{thing}/taken", content=body)
            assert (refused.status_code, refused.json()["code"]) == (status, code), code
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers["x-request-id"] == refused.json()["request_id"]
        wrong = (await client.post("/things/a/taken", json={"count": "many"})).json()["errors"]
        assert [entry["field"] for entry in wrong] == ["body.count"]
        assert "many" not in str(wrong)  # what was sent may be somebody's data
        assert (await client.get("/things/a/sought?after=3")).text == "a 3"
        assert (await client.get("/things/a/sought")).text == "a 0"
        unasked = await client.get("/things/a/sought?after=-1")
        assert (unasked.status_code, [entry["field"] for entry in unasked.json()["errors"]]) == (422, ["query.after"])
        taken = await client.post("/things/a/sent", json={"inside": [{"count": 1}, {"count": 2}]})
        assert (taken.status_code, taken.text) == (202, "2")


async def test_what_is_not_direct_is_the_frameworks(client: httpx2.AsyncClient) -> None:
    async with client:
        assert (await client.get("/things/a/taken")).json()["code"] == "method-not-allowed"
        assert (await client.get("/things/a/asked")).json() == {"thing": "a"}
        assert (await client.get("/things/a/guarded")).status_code == 404
        assert (await client.get("/things/a/counted/4")).text == "5"
        assert (await client.post("/things/a/b/taken")).status_code == 404


async def test_metrics_and_schema_name_the_route_and_not_the_path(client: httpx2.AsyncClient) -> None:
    async with client:
        await client.post("/things/secret/taken", json={"count": 2})
        metrics = (await client.get("/metrics")).text
        assert 'route="/things/{thing}/taken"' in metrics
        assert "secret" not in metrics
        paths = (await client.get("/v1/openapi.json")).json()["paths"]
        body = paths["/things/{thing}/taken"]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"]["properties"]["count"]["minimum"] == 1
        nested = paths["/things/{thing}/sent"]["post"]["requestBody"]["content"]["application/json"]
        assert nested["schema"]["properties"]["inside"]["items"] == body["schema"]
        assert nested["example"] == {"inside": []}
        assert "202" in paths["/things/{thing}/sent"]["post"]["responses"]
        (field,) = [p for p in paths["/things/{thing}/sought"]["get"]["parameters"] if p["in"] == "query"]
        assert (field["name"], field["schema"]["minimum"]) == ("after", 0)


async def test_more_faults_than_are_described_are_only_counted(roomy: httpx2.AsyncClient) -> None:
    """Pydantic describes all of them, or none: a few microseconds each, in which the process does nothing else."""
    body = '{"inside":[' + ",".join("0" for _ in range(MOST_FAULTS + 1)) + "]}"
    async with roomy:
        answer = await roomy.post("/things/a/sent", content=body)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "body", "message": f"has {MOST_FAULTS + 1} faults, too many to name"}]


async def test_of_many_faults_the_first_are_named_by_short_names(roomy: httpx2.AsyncClient) -> None:
    async with roomy:
        answer = await roomy.post("/things/a/sent", content='{"inside":[' + ",".join("0" * 1000) + "]}")
        long = await roomy.post("/things/a/sent", content='{"' + "n" * 1000 + '":0}')
    assert [error["field"] for error in answer.json()["errors"]] == [f"body.inside.{n}" for n in range(MAX_FIELDS)]
    assert "n" * (MAX_PART + 1) not in long.text
