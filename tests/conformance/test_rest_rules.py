"""What every service's REST API has in common, and who may do what at the orchestrator (design 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from gput import hops
from tests.conformance.fuzzing import problem_fault
from tests.conformance.stage import (
    ABSENT,
    AUDITOR,
    GPU,
    HOLDER,
    READER_TOKEN,
    Credentials,
    Stage,
    bearer,
    nobody,
    signed,
)

SERVICES = ("orchestrator", f"holder-{HOLDER}", "agent", "platform")
each_service = pytest.mark.parametrize("service", SERVICES)
METHODS = ("get", "put", "post", "delete", "patch")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


# ---------------------------------------------------------------- documents


@each_service
def test_every_operation_says_what_it_does(stage: Stage, service: str) -> None:
    silent = [n for n, op in operations(stage.openapi(service)) if not op.get("summary") and not op.get("description")]
    assert not silent


@each_service
def test_every_operation_documents_its_problems(stage: Stage, service: str) -> None:
    document = stage.openapi(service)
    for name, operation in operations(document):
        problem = operation["responses"]["4XX"]["content"]["application/problem+json"]["schema"]
        assert problem == {"$ref": "#/components/schemas/Problem"}, name
    assert {"type", "title", "status", "detail", "code", "request_id"} == set(
        document["components"]["schemas"]["Problem"]["required"]
    )


@each_service
def test_every_request_body_has_an_example(stage: Stage, service: str) -> None:
    document = stage.openapi(service)
    without = []
    for name, operation in operations(document):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            if "example" not in media and not _exemplified(media["schema"], document):
                without.append(name)
    assert not without


def _exemplified(schema: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether the schema, or each of the fields that it requires, has an example or can have one value only."""
    if schema.get("examples"):
        return True
    if "$ref" in schema:
        return _exemplified(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document)
    if schema.get("examples") or "example" in schema or "const" in schema or "enum" in schema or "default" in schema:
        return True
    fields = schema.get("properties", {})
    return bool(fields) and all(_exemplified(fields[field], document) for field in schema.get("required", ()))


@each_service
def test_examples_of_request_bodies_fit_their_schema(stage: Stage, service: str) -> None:
    document = stage.openapi(service)
    for name, operation in operations(document):
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        for example in schema.get("examples", ()):
            wanted = {**schema, "components": document["components"]}
            assert jsonschema_rs.validator_for(wanted).is_valid(example), name


# ------------------------------------------------------------------- probes


@each_service
def test_probes(stage: Stage, service: str) -> None:
    assert stage.request(service, "GET", "/livez").json() == {"status": "alive"}
    ready = stage.request(service, "GET", "/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert set(ready.json()["checks"].values()) == {"ok"}
    version = stage.request(service, "GET", "/version").json()
    assert version.keys() == {"service", "version"}
    assert version["service"].startswith(hops.SERVICES[service.split("-", maxsplit=1)[0]])
    metrics = stage.request(service, "GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "gput_http_requests_total" in metrics.text
    assert stage.request(service, "GET", "/v1/openapi.json").json()["openapi"].startswith("3.")


# ----------------------------------------------------------------- problems


@each_service
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not-found"),
        ("GET", "/v1/nothing-of-this-name", 404, "not-found"),
        ("GET", "/v1/%2e%2e/%2e%2e/etc/passwd", 404, "not-found"),
        ("DELETE", "/livez", 405, "method-not-allowed"),
        ("PATCH", "/version", 405, "method-not-allowed"),
    ],
)
def test_unknown_paths_and_methods_are_problems(
    stage: Stage, service: str, method: str, path: str, status: int, code: str
) -> None:
    answer = stage.request(service, method, path)
    assert problem_fault(answer.status_code, dict(answer.headers), answer.text) is None
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if status == 405:
        assert "GET" in answer.headers["allow"]


def _writer(stage: Stage, service: str) -> tuple[str, str, Credentials]:
    """An operation with a JSON body, and somebody who may call it."""
    return {
        "orchestrator": ("POST", "/v1/parties", signed(stage.keys["owner"])),
        f"holder-{HOLDER}": ("POST", "/v1/datasets", bearer(stage.holder_tokens["operator"])),
        "agent": ("PUT", f"/v1/platform/gpus/{GPU}/mux", signed(stage.keys["platform"])),
        "platform": ("PUT", f"/v1/gpus/{GPU}/mux", signed(stage.keys["orchestrator"])),
    }[service]


@each_service
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b"\x00" * (4 * 1024 * 1024 + 1), {413}),
        (b"{", {400, 422}),
        (b"", {400, 422}),
        (b"null", {400, 422}),
        (b"[" * 10_000, {400, 422}),
        (b'{"\xff": 1}', {400, 422}),
        (b'{"no-such-field": 1}', {400, 422}),
    ],
    ids=["oversized", "cut off", "empty", "null", "deep", "not UTF-8", "unknown field"],
)
def test_bad_bodies_are_problems(stage: Stage, service: str, body: bytes, statuses: set[int]) -> None:
    method, path, credentials = _writer(stage, service)
    json = {"content-type": "application/json"}
    answer = stage.request(service, method, path, credentials, content=body, headers=json)
    assert answer.status_code in statuses, answer.text[:300]
    assert problem_fault(answer.status_code, dict(answer.headers), answer.text) is None


def test_a_problem_names_fields_but_repeats_no_values(stage: Stage) -> None:
    body = {"name": "Somebody's record 4711", "role": "holder", "public_key": "somebody's record 4712"}
    answer = stage.request("orchestrator", "POST", "/v1/parties", signed(stage.keys["owner"]), json=body)
    assert answer.status_code == 422
    assert {error["field"] for error in answer.json()["errors"]} == {"body.name", "body.public_key"}
    assert "record 471" not in answer.text


@pytest.mark.parametrize(
    ("fault", "status", "media", "text"),
    [
        ("content type", 404, "application/json", "{}"),
        ("not JSON", 404, "application/problem+json", "<html>"),
        ("lacks", 404, "application/problem+json", "{}"),
        ("status", 404, "application/problem+json", '{"type":"/problems/a","code":"a","title":"A","status":400,'
         '"detail":"d","request_id":"req-1"}'),
        ("code", 404, "application/problem+json", '{"type":"/problems/A_b","code":"A_b","title":"A","status":404,'
         '"detail":"d","request_id":"req-1"}'),
        ("stack trace", 200, "application/json", "Traceback (most recent call last):"),
    ],
)  # fmt: skip
def test_a_bad_problem_is_recognised(fault: str, status: int, media: str, text: str) -> None:
    assert fault in (problem_fault(status, {"content-type": media, "x-request-id": "req-1"}, text) or "")


# -------------------------------------------------------------------- roles

READERS, OWNER, HOLDERS_ONLY = {"owner", "holder", "auditor", "reader"}, {"owner"}, {"holder"}
SESSION = "/v1/sessions/{session}"
# Operation -> who may call it; `reader` is a person with a read-only token. The platform and strangers may call nothing.
MAY = {
    "POST /v1/attestation": READERS - {"reader"},
    "GET /v1/whoami": READERS, "POST /v1/parties": OWNER, "GET /v1/parties": READERS, "GET /v1/parties/{name}": READERS,
    "GET /v1/parties/{name}/keys": READERS, "PUT /v1/parties/{name}/key": {"holder", "auditor"},
    "PUT /v1/parties/{name}/replacement": OWNER, "PUT /v1/parties/{name}/revocation": OWNER,
    "PUT /v1/programs/{digest}/archive": OWNER, "GET /v1/programs": READERS, "GET /v1/programs/{digest}": READERS,
    "GET /v1/programs/{digest}/archive": READERS,
    "PUT /v1/weights/{digest}": OWNER, "GET /v1/weights": READERS, "GET /v1/weights/{digest}": READERS,
    "PUT /v1/validation-datasets/{digest}": OWNER, "GET /v1/validation-datasets": READERS,
    "GET /v1/validation-datasets/{digest}": READERS,
    "POST /v1/sessions": OWNER, "GET /v1/sessions": READERS, f"GET {SESSION}": READERS, f"DELETE {SESSION}": OWNER,
    f"GET {SESSION}/manifest": READERS, f"GET {SESSION}/estimate": READERS,
    f"POST {SESSION}/pause": OWNER, f"POST {SESSION}/resume": OWNER, f"POST {SESSION}/cancel": OWNER,
    **{f"POST /v1/dry-run/sessions{act}": OWNER for act in ("", "/{session}/pause", "/{session}/resume", "/{session}/cancel")},
    "POST /v1/dry-run/parties": OWNER, "POST /v1/dry-run/parties/{name}/replacement": OWNER,
    "POST /v1/dry-run/parties/{name}/key": {"holder", "auditor"},
    f"POST {SESSION}/approvals": HOLDERS_ONLY, f"GET {SESSION}/approvals": READERS,
    f"GET {SESSION}/visits": READERS, "GET /v1/visits/{visit}": READERS, f"GET {SESSION}/losses": READERS,
    f"GET {SESSION}/continuation": READERS, f"GET {SESSION}/predecessor": READERS,
    f"GET {SESSION}/model": READERS, f"GET {SESSION}/model/fetches": READERS,
    f"GET {SESSION}/receipts": READERS, f"GET {SESSION}/receipts/{{index}}": READERS,
    f"GET {SESSION}/receipts/{{index}}/cose": READERS, f"GET {SESSION}/log/head": READERS, f"GET {SESSION}/log/leaves": READERS,
    f"GET {SESSION}/log/inclusion": READERS, f"GET {SESSION}/log/consistency": READERS, f"GET {SESSION}/keys": READERS,
    f"GET {SESSION}/attestations": READERS,
    f"GET {SESSION}/events": READERS, "GET /v1/gpus": READERS, "GET /v1/gpus/{gpu}": READERS,
    f"POST {SESSION}/heads": HOLDERS_ONLY, f"PUT {SESSION}/end": HOLDERS_ONLY, f"POST {SESSION}/share-offers": HOLDERS_ONLY,
    f"PUT {SESSION}/share-offers/{{offer}}": HOLDERS_ONLY, f"POST {SESSION}/share-refusals": HOLDERS_ONLY,
    "GET /v1/inbox": HOLDERS_ONLY, f"POST {SESSION}/channels": HOLDERS_ONLY, f"PUT {SESSION}/channels/{{channel}}": HOLDERS_ONLY,
    "POST /v1/visits/{visit}/report": HOLDERS_ONLY, "POST /v1/visits/{visit}/refusal": HOLDERS_ONLY,
}  # fmt: skip
OPEN = {"GET /livez", "GET /readyz", "GET /version"}
ROLES: dict[str, Callable[[Stage], Credentials]] = {
    "none": lambda s: nobody,
    "owner": lambda s: signed(s.keys["owner"]),
    "holder": lambda s: signed(s.keys[HOLDER]),
    "auditor": lambda s: signed(s.keys[AUDITOR]),
    "platform": lambda s: signed(s.keys["platform"]),
    "reader": lambda s: bearer(READER_TOKEN),
    "unknown token": lambda s: bearer("x" * 43),
}


@pytest.mark.parametrize("role", ROLES)
def test_who_may_do_what_at_the_orchestrator(stage: Stage, role: str) -> None:
    credentials, wrong = ROLES[role](stage), {}
    for operation, may in MAY.items():
        answer = _try(stage, operation, credentials)
        code = answer.json().get("code") if answer.headers.get("content-type") == "application/problem+json" else None
        let_in = answer.status_code != 401 and code not in ("role-missing", "token-reads-only")
        if let_in is not (role in may):
            wrong[operation] = (answer.status_code, code)
        if not let_in:
            assert answer.status_code in (401, 403)
    assert not wrong


def _try(stage: Stage, operation: str, credentials: Credentials) -> Any:
    method, template = operation.split(" ")
    # The session is over, so that no call that is let in changes anything; what could be removed is not there.
    path = template.format(
        session="s_mzxw6ytboi2dcnbr" if method == "DELETE" else stage.sessions["done"], visit=stage.visit, gpu=GPU, name=HOLDER, index=0,
        channel="c_mzxw6ytboi2dcnbr",
        offer="o_mzxw6ytboi2dcnbr", digest=stage.world.material.program if "programs" in template else stage.weights,
    )  # fmt: skip
    return stage.request("orchestrator", method, path, credentials, content=b"" if method == "GET" else b"{}")


def test_the_table_of_roles_has_every_operation(stage: Stage) -> None:
    assert set(MAY) == {name for name, _ in operations(stage.openapi("orchestrator"))} - OPEN


def test_a_holder_sees_its_own_sessions_only(stage: Stage) -> None:
    absent = signed(stage.keys[ABSENT])
    listed = stage.request("orchestrator", "GET", "/v1/sessions", absent).json()["items"]
    assert [item["id"] for item in listed] == [stage.sessions["waiting"]]
    for path in ("", "/visits", "/receipts", "/manifest", "/events", "/model", "/log/head", "/attestations"):
        answer = stage.request("orchestrator", "GET", f"/v1/sessions/{stage.sessions['done']}{path}", absent)
        assert (answer.status_code, answer.json()["code"]) == (403, "not-in-roster"), path


def test_losses_are_for_the_owner_and_that_holder(stage: Stage) -> None:
    path = f"/v1/sessions/{stage.sessions['done']}/losses"
    seen = {
        who: {item["holder"] for item in stage.request("orchestrator", "GET", path, ROLES[who](stage)).json()["items"]}
        for who in ("owner", "holder", "auditor", "reader")
    }
    assert seen == {"owner": set(stage.world.holders), "holder": {HOLDER}, "auditor": set(), "reader": set()}


def test_the_holders_auditor_reads_and_changes_nothing(stage: Stage) -> None:
    service, auditor = f"holder-{HOLDER}", bearer(stage.holder_tokens["auditor"])
    values = {
        "session": stage.sessions["waiting"],
        "visit": stage.visit,
        "name": "ehr",
        "index": 0,
        "whose": "operator",
    }
    for name, _ in operations(stage.openapi(service)):
        method, template = name.split(" ")
        answer = stage.request(
            service, method, template.format(**values), auditor, content=b"" if method == "GET" else b"{}"
        )
        assert (answer.status_code == 403) is (method != "GET"), (name, answer.text)
