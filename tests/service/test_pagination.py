"""Pages of a list: cursors that only this service makes, and the Link to the next page (RFC 8288)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request

from shared.errors import BadRequest
from shared.service.app import create_service_app, service_state
from shared.service.cursors import Cursors, Position
from shared.service.pagination import Paging, link_next
from shared.service.settings import ServiceSettings

CURSORS = Cursors(lambda: b"c" * 32)
NUMBERS = list(range(7))


@pytest.mark.parametrize("position", [0, 12345, "ses-abc", "ü/+", ["s_a", 7]])
def test_cursor_comes_back(position: Position) -> None:
    assert CURSORS.decode("list", CURSORS.encode("list", position)) == position
    assert CURSORS.decode("list", None) is None


@pytest.mark.parametrize(
    "bad", ["", "x", "=", "ü", "AAAA" * 8, CURSORS.encode("other", 1), CURSORS.encode("list", 1)[:-2]]
)
def test_a_foreign_cursor_is_refused(bad: str) -> None:
    with pytest.raises(BadRequest) as caught:
        CURSORS.decode("list", bad)
    assert caught.value.code == "invalid-cursor"
    with pytest.raises(BadRequest):
        Cursors(lambda: b"d" * 32).decode("list", CURSORS.encode("list", 1))


def test_link_keeps_the_other_parameters_and_names_no_host() -> None:
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "server": ("h", 80), "path": "/v1/x>y",
        "query_string": b"limit=5&after=old&holder=a%3E", "headers": [(b"host", b"elsewhere")],
    }  # fmt: skip
    assert link_next(Request(scope), "new") == '</v1/x%3Ey?limit=5&holder=a%3E&after=new>; rel="next"'


@asynccontextmanager
async def listing(folder: Path, cursors: Cursors | None = CURSORS) -> AsyncIterator[httpx2.AsyncClient]:
    app: FastAPI = create_service_app("lists", "1", settings=ServiceSettings(data_dir=folder))
    service_state(app).cursors = cursors

    @app.get("/v1/numbers")
    async def numbers(paging: Paging, odd: bool = False) -> dict[str, Any]:
        page = paging.of(f"numbers/{odd}")
        found = [n for n in NUMBERS if n > (-1 if page.after is None else page.after) and (n % 2 or not odd)]
        return page.page([{"n": n} for n in page.cut(found[: page.ask], lambda n: n)])

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://lists.test") as client:
        yield client


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("?limit=3", [[0, 1, 2], [3, 4, 5], [6]]),
        ("?limit=7", [[0, 1, 2, 3, 4, 5, 6]]),  # ends with its page: no empty page follows
        ("?limit=2&odd=true", [[1, 3], [5]]),
        ("", [NUMBERS]),
    ],
)
async def test_the_link_leads_through_the_list(tmp_path: Path, query: str, pages: list[list[int]]) -> None:
    async with listing(tmp_path) as client:
        found, url = [], f"/v1/numbers{query}"
        while url:
            answer = await client.get(url)
            body = answer.json()
            found.append([item["n"] for item in body["items"]])
            assert (body["next"] is None) is ("link" not in answer.headers)
            url = str(answer.links["next"]["url"]) if "next" in answer.links else ""
            assert not url or body["next"] in url
        assert found == pages


async def test_wrong_parameters_are_problems(tmp_path: Path) -> None:
    async with listing(tmp_path) as client:
        for query in ("limit=0", "limit=501", "limit=x", f"after={'a' * 1025}"):
            assert (await client.get(f"/v1/numbers?{query}")).status_code == 422, query
        cursor = (await client.get("/v1/numbers?limit=1")).json()["next"]
        elsewhere = await client.get(f"/v1/numbers?odd=true&after={cursor}")
        assert (elsewhere.status_code, elsewhere.json()["code"]) == (400, "invalid-cursor")


async def test_the_link_is_documented(tmp_path: Path) -> None:
    async with listing(tmp_path) as client:
        document = (await client.get("/v1/openapi.json")).json()
    operation = document["paths"]["/v1/numbers"]["get"]
    assert {parameter["name"] for parameter in operation["parameters"]} == {"after", "limit", "odd"}
    assert "rel=" in operation["responses"]["200"]["headers"]["Link"]["example"]
    assert "headers" not in document["paths"]["/livez"]["get"]["responses"]["200"]


async def test_a_service_without_a_key_for_cursors_pages_nothing(tmp_path: Path) -> None:
    async with listing(tmp_path, None) as client:
        assert (await client.get("/v1/numbers")).status_code == 500
