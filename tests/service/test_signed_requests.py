"""Signed requests through a whole application: who passes, and every way not to."""

from __future__ import annotations

import base64
import hashlib
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from shared.errors import ConfigurationError
from shared.service.app import create_service_app
from shared.service.replay import ReplayWindow
from shared.service.settings import ServiceSettings
from shared.service.signature_base import content_digest
from shared.service.signatures import SignedAuth
from shared.service.store import Store
from tests.adversary.rows import attack
from tests.service.service_world import (
    BASE_URL,
    HOLDER,
    OWNER,
    STRANGER,
    FakeClock,
    MakeWorld,
    Thing,
    World,
    known_keys,
)

THING = {"name": "a", "count": 1}


def signed(world: World, method: str = "POST", path: str = "/v1/things?x=1", **kw: object) -> httpx2.Request:
    options: dict[str, object] = {"json": THING, "headers": {"idempotency-key": "k1"}} if method == "POST" else {}
    request = httpx2.Request(method, f"{BASE_URL}{path}", **{**options, **kw})
    SignedAuth(OWNER, world.clock, random.Random(7).randbytes).sign(request)
    return request


async def code_of(world: World, request: httpx2.Request) -> str:
    async with world.client(None) as client:
        response = await client.send(request)
    if response.status_code < 400:
        return "accepted"
    assert response.status_code == 401
    assert response.headers["accept-signature"].startswith("gput=")
    assert response.json()["remedy"]
    return str(response.json()["code"])


async def test_a_signed_request_passes(world: World) -> None:
    async with world.client(HOLDER) as client:
        response = await client.get("/v1/whoami?a=b%20c")
    assert response.json() == {"name": "north", "roles": ["holder"]}
    assert await code_of(world, signed(world)) == "accepted"


async def test_matches_the_published_form_of_rfc_9421(world: World) -> None:
    """The base written out by hand from RFC 9421 section 2.5, verified by the key itself."""
    request = signed(world)
    params = request.headers["signature-input"].removeprefix("gput=")
    digest = base64.b64encode(hashlib.sha256(request.content).digest()).decode()
    base = (
        '"@method": POST\n'
        f'"@target-uri": {BASE_URL}/v1/things?x=1\n'
        f'"content-digest": sha-256=:{digest}:\n'
        '"idempotency-key": k1\n'
        f'"@signature-params": {params}'
    )
    expected = base64.b64encode(OWNER.sign_http(base.encode())).decode()
    assert request.headers["signature"] == f"gput=:{expected}:"
    assert params.startswith('("@method" "@target-uri" "content-digest" "idempotency-key");created=1800000000;nonce="')
    assert params.endswith(f';keyid="{OWNER.fingerprint}";tag="gput/1"')


def set_header(name: str, value: str) -> Callable[[httpx2.Request], None]:
    return lambda request: request.headers.__setitem__(name, value)


def edit_input(old: str, new: str) -> Callable[[httpx2.Request], None]:
    def edit(request: httpx2.Request) -> None:
        assert old in request.headers["signature-input"]
        request.headers["signature-input"] = request.headers["signature-input"].replace(old, new)

    return edit


def drop(name: str) -> Callable[[httpx2.Request], None]:
    return lambda request: request.headers.__delitem__(name)


WRONG = {
    "unsigned": (drop("signature"), "signature-missing"),
    "no input": (drop("signature-input"), "signature-missing"),
    "another label": (set_header("signature-input", "x=()"), "signature-malformed"),
    "signature not base64": (set_header("signature", "gput=:!!:"), "signature-malformed"),
    "another signature": (
        set_header("signature", f"gput=:{base64.b64encode(bytes(64)).decode()}:"),
        "signature-invalid",
    ),
    "digest not covered": (edit_input(' "content-digest"', ""), "signature-malformed"),
    "key not covered": (edit_input(' "idempotency-key"', ""), "signature-malformed"),
    "method not covered": (edit_input('"@method" ', ""), "signature-malformed"),
    "component twice": (edit_input('"@method" ', '"@method" "@method" '), "signature-malformed"),
    "unknown component": (edit_input('"@method" ', '"@method" "@path" '), "signature-malformed"),
    "another tag": (edit_input("gput/1", "gput/2"), "signature-malformed"),
    "parameter twice": (edit_input(";created=", ";created=1800000000;created="), "signature-malformed"),
    "extra parameter": (edit_input(";created=", ";expires=1900000000;created="), "signature-malformed"),
    "created moved": (edit_input("created=1800000000", "created=1800000001"), "signature-invalid"),
    "created as text": (edit_input("created=1800000000", 'created="soon"'), "signature-malformed"),
    "another's keyid": (edit_input(OWNER.fingerprint, HOLDER.fingerprint), "signature-invalid"),
    "unknown keyid": (edit_input(OWNER.fingerprint, STRANGER.fingerprint), "signature-key-unknown"),
    "another key header": (set_header("idempotency-key", "k2"), "signature-invalid"),
    "another digest": (set_header("content-digest", content_digest(bytes(32))), "signature-invalid"),
    "digest gone": (drop("content-digest"), "signature-malformed"),
    "another host": (set_header("host", "other.test"), "signature-invalid"),
}


@attack("O01", any="stopped: signed requests")
@pytest.mark.parametrize("name", WRONG)
async def test_one_thing_changed_is_refused(world: World, name: str) -> None:
    change, code = WRONG[name]
    request = signed(world)
    change(request)
    assert await code_of(world, request) == code
    assert world.acts == []


async def test_another_method_path_or_body_is_refused(world: World) -> None:
    good = signed(world, "GET", "/v1/whoami")
    other = httpx2.Request("GET", f"{BASE_URL}/v1/whoami?admin=1", headers=good.headers)
    assert await code_of(world, other) == "signature-invalid"
    good = signed(world)
    body = b'{"name":"b","count":1}'
    changed = httpx2.Request("POST", good.url, headers=good.headers, content=body)
    changed.headers["content-length"] = str(len(body))
    assert await code_of(world, changed) == "content-digest-mismatch"
    emptied = httpx2.Request("POST", good.url, headers=good.headers, content=b"")
    emptied.headers["content-length"] = "0"
    async with world.client(None) as client:
        assert (await client.send(emptied)).status_code in (401, 422)
    assert world.acts == []


@pytest.mark.parametrize(
    "said", ["text/plain", "application/x-www-form-urlencoded", "application/cbor", "", "nonsense", None]
)
async def test_a_signed_body_is_json_whatever_its_type_says(world: World, said: str | None) -> None:
    """No signature covers the type: whoever is on the way had a sound request refused by it, in a signed answer."""
    request = signed(world)
    request.headers.pop("content-type")
    if said is not None:
        request.headers["content-type"] = said
    assert await code_of(world, request) == "accepted"


async def test_an_unsigned_body_is_json_only_where_it_says_so(world: World) -> None:
    """A page in somebody's browser sends text to any address without asking first."""

    @world.app.post("/v1/unsigned")
    async def take(thing: Thing) -> str:
        return thing.name

    async with world.client(None) as client:
        assert (await client.post("/v1/unsigned", json=THING)).status_code == 200
        answer = await client.post(
            "/v1/unsigned", content=b'{"name": "a", "count": 1}', headers={"content-type": "text/plain"}
        )
    assert answer.status_code == 422


async def test_a_repeated_header_is_not_read_in_two_ways(world: World) -> None:
    good = signed(world)
    doubled = httpx2.Request(
        "POST", good.url, headers=[*good.headers.multi_items(), ("idempotency-key", "k2")], content=good.content
    )
    assert await code_of(world, doubled) == "signature-invalid"


@pytest.mark.parametrize(
    ("shift", "code"), [(-61, "signature-stale"), (61, "signature-stale"), (-59, "accepted"), (59, "accepted")]
)
async def test_window(world: World, shift: float, code: str) -> None:
    request = signed(world, "GET", "/v1/whoami")
    world.clock.now -= shift
    assert await code_of(world, request) == code


@attack("O01 V26", any="stopped: a bounded replay window that outlives a restart")
async def test_replay_is_refused_also_after_a_restart(make_world: MakeWorld) -> None:
    async with make_world() as world:
        request = signed(world)
        assert await code_of(world, request) == "accepted"
        assert await code_of(world, request) == "signature-replayed"
    async with make_world() as world:
        world.clock.now += 59
        assert await code_of(world, request) == "signature-replayed"
        world.clock.now += 2
        assert await code_of(world, request) == "signature-stale"


async def test_a_forged_request_takes_no_room_in_the_window(world: World) -> None:
    good, forged = signed(world), signed(world)
    forged.headers["signature"] = f"gput=:{base64.b64encode(bytes(64)).decode()}:"
    assert await code_of(world, forged) == "signature-invalid"
    assert await code_of(world, good) == "accepted"


async def test_roles(world: World) -> None:
    async with world.client(HOLDER) as client:
        response = await client.post("/v1/things", json=THING, headers={"idempotency-key": "k"})
    assert response.status_code == 403
    assert (response.json()["code"], response.json()["expected"], response.json()["got"]) == (
        "role-missing",
        "owner",
        "holder",
    )


async def test_bearer_token_only_reads(world: World) -> None:
    async with world.client(None) as client:
        assert (await client.get("/v1/whoami", headers={"authorization": "Bearer right"})).json()["name"] == "reader"
        wrong = await client.get("/v1/whoami", headers={"authorization": "Bearer wrong"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "token-unknown")
        post = await client.post("/v1/things", json=THING, headers={"authorization": "Bearer right"})
        assert (post.status_code, post.json()["code"]) == (403, "token-reads-only")


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    for offset in range(0, len(body), 1 << 20):
        yield body[offset : offset + (1 << 20)]


@pytest.mark.parametrize(
    ("size", "stated", "status", "code"),
    [
        (5_000_000, None, 200, None),
        (5_000_000, b"other", 401, "content-digest-mismatch"),
        (7_000_000, None, 413, "body-too-large"),
        (11_000_000, None, 413, "body-too-large"),
    ],
)
async def test_streamed_upload(
    world: World, tmp_path: Path, size: int, stated: bytes | None, status: int, code: str | None
) -> None:
    body = random.Random(size).randbytes(size)
    digest = hashlib.sha256(stated or body).digest()
    async with world.client() as client:
        response = await client.put(
            "/v1/archive", content=chunks(body), headers={"content-digest": content_digest(digest)}
        )
    assert response.status_code == status
    assert response.json().get("code") == code
    assert not [name for name in os.listdir(tmp_path) if name.startswith("upload-")]


async def test_a_stream_without_digest_is_not_signed(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(ValueError, match="Content-Digest"):
            await client.put("/v1/archive", content=chunks(b"x"))


def test_keys_need_window_and_address(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path)
    replay = ReplayWindow(Store(settings.store_url), FakeClock())
    for options in ({"replay": replay}, {"base_url": BASE_URL}):
        with pytest.raises(ConfigurationError):
            create_service_app("x", "1", settings=settings, keys=known_keys, **options)
