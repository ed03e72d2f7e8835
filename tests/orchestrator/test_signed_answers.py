"""The orchestrator signs what it answers to who asks for it: every operation, refusals too; streams and strangers go unsigned."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2

from shared.crypto.signing import PartyKey, load_public
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from shared.service.signed_answers import ACCEPT_ANSWER, AnswerParts, check_answer
from tests.adversary.rows import attack
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import ARCHIVE, BASE, OWNER, PROGRAM, World, opened, prepared, submit

ASKING = {"accept-signature": ACCEPT_ANSWER}
VALUES = {"digest": "00" * 32, "sha256": "00" * 32, "number": "0", "leaf": "0", "size": "1", "code": "not-found"}
OPEN = re.compile(r"/(livez|readyz|version|metrics|v1/openapi\.json|problems/.*|ui/.*)")
"""Nothing of these is verified before it is answered."""


def believed(world: World, answer: httpx2.Response) -> bool:
    """Whether it is signed. Fails where its signature is not right."""
    if "signature" not in answer.headers:
        assert "content-digest" not in answer.headers
        return False
    identity = load_public((world.folder / "data" / "identity.pub").read_bytes())
    parts = AnswerParts(answer.status_code, dict(answer.headers), answer.request.headers["signature"])
    check_answer(parts, answer.content, key=identity, what="it answered")
    return True


async def asked(world: World, method: str, path: str, *, who: PartyKey = OWNER, **options: object) -> httpx2.Response:
    async with world.client(who) as client:
        client.headers.update(ASKING)
        return await client.request(method, path, **options)  # type: ignore[arg-type]


async def test_every_operation_s_refusals_and_answers_are_signed(world: World) -> None:
    """An operation that answers a verified request unsigned is one that clients who want signatures cannot use."""
    async with world.client(OWNER) as client:
        document = (await client.get("/v1/openapi.json")).json()
    unsigned, seen = [], 0
    for path, operations in document["paths"].items():
        if OPEN.fullmatch(path):
            continue
        place = re.sub(r"{(\w+)}", lambda found: VALUES.get(found[1], "s_none"), path)
        for method in operations:
            body = {"json": {}, "headers": {"idempotency-key": f"k{seen}"}} if method in ("post", "put") else {}
            answer = await asked(world, method.upper(), place, **body)
            seen += 1
            if not believed(world, answer):
                unsigned.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
    assert not unsigned
    assert seen > 40


async def test_what_was_done_is_signed_with_its_place_and_version(world: World) -> None:
    owner = await prepared(world)
    owner.headers.update(ASKING)
    made = await submit(owner)
    assert (made.status_code, believed(world, made)) == (201, True)
    assert '"etag" "location"' in made.headers["signature-input"]
    session = made.json()["id"]
    again = await submit(owner)
    assert (again.headers.get("idempotent-replayed"), believed(world, again)) == ("true", True)
    assert again.headers["signature"] != made.headers["signature"]
    archive = await owner.get(f"/v1/programs/{PROGRAM}/archive")
    assert (archive.content, believed(world, archive)) == (ARCHIVE, True)
    shown = await owner.get(f"/v1/sessions/{session}")
    assert (shown.json()["id"], believed(world, shown)) == (session, True)
    await owner.aclose()


async def test_who_does_not_ask_gets_the_answer_as_before(world: World) -> None:
    for headers in ({}, {"accept-signature": 'sig=("@status");tag="other"'}):
        async with world.client(OWNER) as client:
            answer = await client.get("/v1/whoami", headers=headers)
        assert answer.status_code == 200
        assert not {"signature", "signature-input", "content-digest"} & set(answer.headers)


@attack("O04", any="stopped: only verified requests are answered under a signature, and each of them once")
async def test_nothing_is_signed_for_a_request_that_was_not_verified(world: World) -> None:
    """Or somebody on the way could put a party's signature on another request, and have the answer to that one believed."""
    stranger = await asked(world, "GET", "/v1/whoami", who=key(77))
    assert (stranger.status_code, believed(world, stranger)) == (401, False)
    signed = httpx2.Request("GET", f"{BASE}/v1/whoami", headers=ASKING)
    SignedAuth(OWNER, system_clock, system_entropy).sign(signed)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(world.app), base_url=BASE) as client:
        for method, path, status in (
            ("GET", "/v1/sessions", 401), ("GET", "/livez", 200), ("GET", "/v1/openapi.json", 200),
            ("GET", "/v1/nothing", 404), ("DELETE", "/v1/whoami", 405),
        ):  # fmt: skip
            other = await client.send(httpx2.Request(method, f"{BASE}{path}", headers=signed.headers))
            assert (path, other.status_code, believed(world, other)) == (path, status, False)
        first, second = await client.send(signed), await client.send(signed)
    assert (first.status_code, believed(world, first)) == (200, True)
    assert (second.status_code, second.json()["code"]) == (401, "signature-replayed")
    assert not believed(world, second), "of one request there is at most one signed answer"


async def test_a_restart_signs_as_the_same(installation: Path, tmp_path: Path) -> None:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    found = []
    for _ in range(2):
        async with opened(tmp_path) as world:
            answer = await asked(world, "GET", "/v1/whoami")
            assert believed(world, answer)
            found.append(re.findall(r'keyid="(\w+)"', answer.headers["signature-input"]))
    assert found[0] == found[1]
