"""The API reference has every operation, and who may ask it is what the service itself insists on."""

from __future__ import annotations

from docs.api import EVERYBODY, HOLDER_ROOMS, documented, holder_reference, orchestrator_reference, who
from orchestrator.app import ROOMS

ROUTES = [route for room in (*ROOMS, *HOLDER_ROOMS) for route in documented(room.router.routes)]


def test_every_operation_is_in_the_reference() -> None:
    pages = orchestrator_reference() + holder_reference()
    assert len(ROUTES) > 60
    assert not [route.path for route in ROUTES for method in route.methods if f"| `{method} {route.path}`" not in pages]


def test_no_operation_is_for_everybody() -> None:
    assert not [route.path for route in ROUTES if route.path.startswith("/v1/") and who(route) == EVERYBODY]


def test_who_may_ask_is_read_from_the_routes() -> None:
    found = {(method, route.path): who(route) for route in ROUTES for method in route.methods}
    assert found["POST", "/v1/sessions"] == "owner"
    assert found["PUT", "/v1/programs/{digest}/archive"] == "owner"  # a streamed upload
    assert found["POST", "/v1/visits/{visit}/report"] == "holder"  # served directly, asks in its own code
    assert found["GET", "/v1/sessions/{session}/model"] == "any party"  # then by the output policy
    assert found["GET", "/v1/requests/{session}"] == "operator, auditor"
    assert found["POST", "/v1/requests/{session}/veto"] == "operator"


def test_a_row_says_what_is_sent_and_answered() -> None:
    rows = orchestrator_reference().splitlines()
    (submit,) = [row for row in rows if row.startswith("| `POST /v1/sessions`")]
    assert submit.split(" | ")[2:4] == ["owner", "`{document, signature}`; Idempotency-Key"]
    assert "201 `{id, name, phase" in submit
    (listed,) = [row for row in rows if row.startswith("| `GET /v1/sessions`")]
    assert "<br>in pages" in listed
    assert "{items: {id" in listed


def test_a_row_says_what_its_request_may_ask_for() -> None:
    rows = orchestrator_reference().splitlines()
    asked = {row.split("`")[1]: row.split(" | ")[0] for row in rows if row.startswith("| `")}
    assert asked["GET /v1/sessions"].endswith("`<br>?phase<br>in pages")
    assert asked["GET /v1/inbox"].endswith("`<br>?after, wait, owners")  # not in pages, so `after` is the inbox's own
    assert asked["GET /v1/sessions/{session}/events"].endswith("`<br>?after")
