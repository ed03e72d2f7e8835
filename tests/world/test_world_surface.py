"""What else an interface could be talked into: calling addresses out of a request, leaving its folders, writing headers. In one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World, url
from tests.world.world_wire import Link

SERVICES = ("orchestrator", "agent", "platform", "holder-city")
ADDRESSES = re.compile(r"ur[il]|callback|webhook|endpoint|href|host|proxy|redirect|forward", re.IGNORECASE)
ANSWERED = {"orchestrator_url"}
"""Names of answers, not of requests."""
HOSTILE = (
    "..", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fjournal.db", "%00", "a%0d%0ax-evil:%201", "%0d%0a%0d%0aevil",
    "%22%3e%3cscript%3eevil", "a" * 4000, "%ff%fe", "s_%27%20or%201=1--",
)  # fmt: skip
OWN = re.compile(r"/inbox|/cvms/")  # what a service does by itself, from its start on
PARAMETER = re.compile(r"{[^}]*}")
HEADERS = {
    "host": "evil.test", "x-forwarded-host": "evil.test", "x-forwarded-for": "evil.test", "x-original-url": "/evil",
    "x-http-method-override": "DELETE", "referer": "http://evil.test/", "origin": "http://evil.test",
}  # fmt: skip


def fields(schema: Any) -> Iterator[str]:
    """Names of everything that a caller may say, at any depth of an OpenAPI document."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        if schema.get("in") in ("query", "header", "path"):
            yield schema["name"]
        for part in schema.values():
            yield from fields(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from fields(part)


def caller(world: World, service: str) -> httpx2.AsyncClient:
    """Somebody with every right there is: what is refused is refused to all."""
    key, headers, auth = world.key("owner"), {}, None
    if service.startswith("holder"):
        headers["authorization"] = f"Bearer {(world.folder / service / 'operator.token').read_text().strip()}"
    else:
        auth = SignedAuth(key, system_clock, system_entropy)
    return httpx2.AsyncClient(
        transport=Link(world.wire, "owner", service), base_url=url(service), headers=headers, auth=auth, timeout=20
    )


@pytest.fixture
async def surface(new_world: NewWorld) -> Any:
    async with new_world() as world:
        yield world


@attack("O01", any="stopped: no request names an address to call, and no path leaves its folder")
async def test_no_request_names_an_address_a_file_or_a_header(surface: World) -> None:
    """SSRF needs a field that is called; path and header injection need a path or header made of what was said."""
    for service in SERVICES:
        document = surface[service].app.openapi()  # type: ignore[union-attr]
        named = {name for name in fields(document["paths"]) if ADDRESSES.search(name)}
        said = {name for name in fields(document.get("components", {})) if ADDRESSES.search(name)}
        assert (named, said - ANSWERED) == (set(), set()), service


@pytest.mark.parametrize("service", SERVICES)
async def test_hostile_names_and_headers_reach_nothing(service: str, surface: World) -> None:
    calls = len(surface.wire.transcript)
    document = surface[service].app.openapi()  # type: ignore[union-attr]
    paths = [path for path, verbs in document["paths"].items() if "get" in verbs and "{" in path]
    tried = 0
    async with caller(surface, service) as http:
        for path in paths:
            for word in HOSTILE:
                answer = await http.get(PARAMETER.sub(word, path), headers=HEADERS)
                assert 400 <= answer.status_code < 500, (path, word, answer.status_code)
                assert not any("evil" in f"{name}{value}" for name, value in answer.headers.items()), (path, word)
                assert b"root:" not in answer.content
                tried += 1
    assert tried == len(paths) * len(HOSTILE)
    others = [
        e.call for e in surface.wire.transcript[calls:] if e.call.client == service and not OWN.search(e.call.path)
    ]
    assert others == [], "no call of anybody else was made for it"
