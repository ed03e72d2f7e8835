"""Lists are read page by page along their Link, and a repeated POST under one Idempotency-Key acts once, at every service (design 8)."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from shared.crypto.signing import PartyKey
from shared.protocol.merkle import leaf_hash, verify_inclusion
from tests.conformance.stage import HOLDER, Credentials, Stage, bearer, signed

SERVICES = ("orchestrator", f"holder-{HOLDER}", "agent", "platform")
HOLDERS_SERVICE = f"holder-{HOLDER}"
PARTS = ("visits", "losses", "receipts", "approvals", "keys", "attestations", "log/leaves", "model/fetches")
LISTS = {
    "orchestrator": {
        "/v1/parties", "/v1/parties/{name}/keys", "/v1/programs", "/v1/weights", "/v1/validation-datasets", "/v1/sessions",
        *(f"/v1/sessions/{{session}}/{part}" for part in PARTS),
    },
    HOLDERS_SERVICE: {
        "/v1/datasets", "/v1/requests", "/v1/visits", "/v1/receipts",
        "/v1/requests/{session}/keys", "/v1/requests/{session}/log/receipts",
    },
    # The GPUs of one machine: never a second page.
    "agent": set(), "platform": set(),
}  # fmt: skip


def _walk(stage: Stage, service: str, path: str, credentials: Credentials) -> list[Any]:
    """The whole list by pages of one, following Link; `next` in the body must say the same."""
    items: list[Any] = []
    url = f"{path}?limit=1"
    while True:
        answer = stage.request(service, "GET", url, credentials)
        page = answer.json()
        assert len(page["items"]) <= 1
        items += page["items"]
        assert (page["next"] is None) is ("link" not in answer.headers)
        if page["next"] is None:
            return items
        url = str(answer.links["next"]["url"])
        assert url == f"{path}?limit=1&after={page['next']}"


@pytest.mark.parametrize(
    "collection", ["visits", "losses", "receipts", "approvals", "keys", "attestations", "log/leaves"]
)
def test_the_orchestrators_lists_are_read_page_by_page(stage: Stage, collection: str) -> None:
    path, owner = f"/v1/sessions/{stage.sessions['done']}/{collection}", signed(stage.keys["owner"])
    whole = stage.request("orchestrator", "GET", path, owner, params={"limit": 200}).json()
    assert whole["next"] is None
    assert len(whole["items"]) > 2
    assert _walk(stage, "orchestrator", path, owner) == whole["items"]


@pytest.mark.parametrize(
    "path", ["/v1/sessions", "/v1/parties", "/v1/programs", "/v1/weights", "/v1/validation-datasets"]
)
def test_so_are_those_of_all_sessions(stage: Stage, path: str) -> None:
    owner = signed(stage.keys["owner"])
    whole = stage.request("orchestrator", "GET", path, owner).json()["items"]
    names = [item.get("id") or item.get("name") or item["digest"] for item in whole]
    assert names
    walked = _walk(stage, "orchestrator", path, owner)
    assert [item.get("id") or item.get("name") or item["digest"] for item in walked] == names


@pytest.mark.parametrize("collection", ["visits", "receipts", "requests", "datasets"])
def test_the_holders_lists_are_read_page_by_page(stage: Stage, collection: str) -> None:
    auditor = bearer(stage.holder_tokens["auditor"])
    whole = stage.request(HOLDERS_SERVICE, "GET", f"/v1/{collection}", auditor).json()["items"]
    assert whole
    assert _walk(stage, HOLDERS_SERVICE, f"/v1/{collection}", auditor) == whole


def test_a_cursor_is_good_for_its_own_list_only(stage: Stage) -> None:
    owner, base = signed(stage.keys["owner"]), f"/v1/sessions/{stage.sessions['done']}"
    cursor = stage.request("orchestrator", "GET", f"{base}/visits", owner, params={"limit": 1}).json()["next"]
    for wrong in (cursor[:-2] + "AA", "x", ""):
        answer = stage.request("orchestrator", "GET", f"{base}/visits", owner, params={"after": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-cursor")
    elsewhere = stage.request("orchestrator", "GET", f"{base}/receipts", owner, params={"after": cursor})
    assert elsewhere.json()["code"] == "invalid-cursor"


def test_leaves_come_with_their_way_to_the_root_of_any_tree(stage: Stage) -> None:
    owner, base = signed(stage.keys["owner"]), f"/v1/sessions/{stage.sessions['done']}/log"
    head = stage.request("orchestrator", "GET", f"{base}/head", owner).json()
    for size in (0, 1, 3, head["size"]):
        items = stage.request("orchestrator", "GET", f"{base}/leaves?size={size}", owner).json()["items"]
        assert [item["index"] for item in items] == list(range(size))
        for item in items:
            proof = stage.request(
                "orchestrator", "GET", f"{base}/inclusion?index={item['index']}&size={size}", owner
            ).json()
            assert item["path"] == proof["path"]
            path, root = [bytes.fromhex(node) for node in item["path"]], bytes.fromhex(proof["root"])
            verify_inclusion(leaf_hash(base64.b64decode(item["leaf"])), item["index"], size, path, root)
            assert size != head["size"] or proof["root"] == head["root"]
    without = stage.request("orchestrator", "GET", f"{base}/leaves", owner).json()["items"]
    assert (len(without), {item["path"] for item in without}) == (head["size"], {None})
    beyond = stage.request("orchestrator", "GET", f"{base}/leaves?size={head['size'] + 1}", owner)
    assert (beyond.status_code, beyond.json()["code"]) == (400, "no-such-tree")


@pytest.mark.parametrize("service", SERVICES)
def test_every_list_documents_its_pages(stage: Stage, service: str) -> None:
    documented = {
        path
        for path, item in stage.openapi(service)["paths"].items()
        if "Link" in item.get("get", {}).get("responses", {}).get("200", {}).get("headers", {})
    }
    assert documented == LISTS[service]


# ----------------------------------------------------------------- repeated

KEYED = {
    "orchestrator": {
        "/v1/sessions", "/v1/parties",
        *(f"/v1/sessions/{{session}}/{word}" for word in ("pause", "resume", "cancel", "approvals", "channels")),
    },
    HOLDERS_SERVICE: {"/v1/datasets", *(f"/v1/requests/{{session}}/{word}" for word in ("approve", "refuse", "veto"))},
    "agent": set(), "platform": set(),
}  # fmt: skip
NEEDS_NO_KEY = {
    # One word per visit and epoch; the same word again is acknowledged again.
    "/v1/visits/{visit}/report", "/v1/visits/{visit}/refusal",
    # One word per start of the orchestrator, which names what it answers.
    "/v1/sessions/{session}/heads",
    # An answer to share_wanted: a proof is over the asker's nonce and replaces the one before, the newest refusal is what counts.
    "/v1/sessions/{session}/share-offers", "/v1/sessions/{session}/share-refusals",
    # These ask, and change nothing.
    "/v1/attestation",
    "/v1/datasets/{name}/inspect", "/v1/policy/check", "/cvms/{name}/quote", "/cvms/{name}/derived-key",
    "/v1/dry-run/sessions", "/v1/dry-run/parties", "/v1/dry-run/parties/{name}/key", "/v1/dry-run/parties/{name}/replacement",
    *(f"/v1/dry-run/sessions/{{session}}/{word}" for word in ("pause", "resume", "cancel")),
    *(f"/v1/dry-run/requests/{{session}}/{word}" for word in ("approve", "refuse", "veto")),
    # A launch clears what was there; an extension names the value that it extends, so that it happens once.
    "/cvms/{name}/launch", "/cvms/{name}/extend",
    # These carry counters of their own, under keys that no HTTP header could stand for.
    *(f"/v1/gpus/{{gpu}}/ports/{{port}}/{kind}" for kind in ("spdm", "commands", "copy", "bounce", "staging")),
    # A fresh report over the caller's own nonce.
    "/v1/gpus/{gpu}/evidence",
}  # fmt: skip


@pytest.mark.parametrize("service", SERVICES)
def test_every_post_takes_a_key_or_needs_none(stage: Stage, service: str) -> None:
    posts = {path: item["post"] for path, item in stage.openapi(service)["paths"].items() if "post" in item}
    keyed = {
        path for path, post in posts.items() if "Idempotency-Key" in {p["name"] for p in post.get("parameters", ())}
    }
    assert keyed == KEYED[service]
    assert posts.keys() - keyed <= NEEDS_NO_KEY
    for path in keyed:
        responses = posts[path]["responses"]
        assert "idempotency-key-reused" in responses["422"]["description"], path
        assert any("Idempotent-Replayed" in answer.get("headers", {}) for answer in responses.values()), path


def _post(stage: Stage, service: str, path: str, who: Credentials, key: str | None, body: Any) -> httpx2.Response:
    headers = {"idempotency-key": key} if key else {}
    return stage.request(service, "POST", path, who, headers=headers, json=body)


def _acts_once(stage: Stage, service: str, path: str, who: Credentials, body: Any, other: Any) -> httpx2.Response:
    """The first answer, after what a repeated key must do was seen to be done."""
    key = f"once-{service}-{path}"
    first, second = (_post(stage, service, path, who, key, body) for _ in range(2))
    assert first.status_code < 300, first.text
    assert (second.status_code, second.json()) == (first.status_code, first.json())
    assert (first.headers.get("idempotent-replayed"), second.headers["idempotent-replayed"]) == (None, "true")
    assert second.headers.get("location") == first.headers.get("location")
    refused = _post(stage, service, path, who, key, other)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency-key-reused")
    return first


def test_a_party_is_enrolled_once(stage: Stage) -> None:
    owner, body = (
        signed(stage.keys["owner"]),
        {"name": "repeated", "role": "holder", "public_key": PartyKey.generate().public.hex()},
    )
    assert _acts_once(stage, "orchestrator", "/v1/parties", owner, body, {**body, "role": "auditor"}).status_code == 201
    assert _post(stage, "orchestrator", "/v1/parties", owner, None, body).status_code == 200
    malformed = _post(stage, "orchestrator", "/v1/parties", owner, "two words", body)
    assert (malformed.status_code, malformed.json()["code"]) == (400, "idempotency-key-malformed")


def test_a_dataset_is_added_once(stage: Stage) -> None:
    operator = bearer(stage.holder_tokens["operator"])
    path = str(stage.world.folder / f"holder-{HOLDER}" / "ehr.npz")
    body = {"name": "repeated", "path": path}
    assert _acts_once(stage, HOLDERS_SERVICE, "/v1/datasets", operator, body, {**body, "name": "x"}).status_code == 201
    again = _post(stage, HOLDERS_SERVICE, "/v1/datasets", operator, None, body)
    assert (again.status_code, again.json()["code"]) == (409, "dataset-exists")
    # The answer was lost with the process before it was kept: the act under the same key finds what it had done.
    found = _post(stage, HOLDERS_SERVICE, "/v1/datasets", operator, "another key", body)
    assert (found.status_code, found.json()["code"]) == (400, "idempotency-key-malformed")
    assert _post(stage, HOLDERS_SERVICE, "/v1/datasets", operator, "another-key", body).status_code == 201
    differs = _post(stage, HOLDERS_SERVICE, "/v1/datasets", operator, "third-key", {**body, "options": {"label": "y"}})
    assert (differs.status_code, differs.json()["code"]) == (409, "dataset-exists")
    assert stage.request(HOLDERS_SERVICE, "DELETE", "/v1/datasets/repeated", operator).status_code == 204
