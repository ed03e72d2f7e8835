"""Every error answer is a problem document that says enough and not too much, and comes back as the same error."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256

import httpx2
import pytest
from fastapi import Request

import shared.errors
from shared.errors import ConfigurationError, Conflict, GputError, Unavailable, VerificationFailed
from shared.service.logging import configure_logging
from shared.service.problem_reader import MAX_RETRY_AFTER_S, MAX_TEXT, error_of, retry_after_s
from shared.service.problems import bare_problem, error_response
from tests.service.service_world import World

REQUIRED = {"type", "title", "status", "detail", "instance", "code", "request_id"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    yield stream
    configure_logging("warning", "json")


def check_shape(response: httpx2.Response, status: int, code: str) -> dict[str, object]:
    document: dict[str, object] = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert document.keys() >= REQUIRED
    assert document["status"] == response.status_code == status
    assert document["code"] == code
    assert document["type"] == f"/problems/{code}"
    assert document["request_id"] == response.headers["x-request-id"]
    return document


async def test_validation_names_fields_and_shows_no_value(world: World) -> None:
    async with world.client() as client:
        body = {"name": "patient-smith-4711", "count": -31337}
        response = await client.post("/v1/things", json=body, headers={"idempotency-key": "k"})
    document = check_shape(response, 422, "invalid-request")
    assert [error["field"] for error in document["errors"]] == ["body.name", "body.count"]
    assert "patient" not in response.text
    assert "31337" not in response.text


async def test_broken_json_shows_no_value(world: World) -> None:
    async with world.client() as client:
        response = await client.post(
            "/v1/things",
            content=b'{"patient-smith',
            headers={"content-type": "application/json", "idempotency-key": "k"},
        )
    check_shape(response, 422, "invalid-request")
    assert "patient" not in response.text


async def test_unknown_path_and_method(world: World) -> None:
    async with world.client(None) as client:
        check_shape(await client.get("/v1/nothing"), 404, "not-found")
        wrong = await client.delete("/v1/whoami")
        check_shape(wrong, 405, "method-not-allowed")
        assert wrong.headers["allow"] == "GET"


async def test_a_slash_too_many_leads_nowhere(world: World) -> None:
    """Least of all to the host that the request names."""
    async with world.client(None) as client:
        answer = await client.get("/livez/", headers={"host": "evil.example"})
    check_shape(answer, 404, "not-found")
    assert "location" not in answer.headers


async def test_body_limit(world: World) -> None:
    async with world.client() as client:
        response = await client.post(
            "/v1/things",
            content=b'"' + b"x" * (5 << 20) + b'"',
            headers={"content-type": "application/json", "idempotency-key": "k"},
        )
    check_shape(response, 413, "body-too-large")


@pytest.mark.parametrize(("kind", "lines"), [(ConfigurationError, 1), (Unavailable, 0), (Conflict, 0)])
def test_what_only_the_operator_can_mend_is_said_in_the_log(
    kind: type[GputError], lines: int, log: io.StringIO
) -> None:
    """A damaged page of a database that runs: the owner read why, and the operator of a status 500."""
    error = kind("the database is damaged", code="odd", remedy="Restore it from a backup.")
    error_response(error, Request({"type": "http", "path": "/v1/sessions", "headers": []}))
    assert [log.getvalue().count(words) for words in ("is damaged", '"odd"', "Restore it")] == [lines] * 3


async def test_our_own_fault_is_hidden_and_logged_without_its_message(world: World, log: io.StringIO) -> None:
    async with world.client(None) as client:
        response = await client.get("/v1/broken")
    document = check_shape(response, 500, "internal")
    assert "Smith" not in response.text
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    failure = next(line for line in lines if line["event"] == "request failed")
    assert failure["request_id"] == document["request_id"]
    assert failure["exception"] == "builtins.RuntimeError"
    assert any("service_world.py" in frame and "broken" in frame for frame in failure["frames"])
    assert "Smith" not in log.getvalue()


async def test_the_family_keeps_code_remedy_and_comparison(world: World) -> None:
    async with world.client() as client:
        response = await client.post(
            "/v1/things", json={"name": "forbidden", "count": 1}, headers={"idempotency-key": "k"}
        )
        document = check_shape(response, 403, "no-such-thing")
        assert (document["remedy"], document["expected"], document["got"]) == ("Ask.", "a", "b")
        later = await client.get("/v1/refused")
        check_shape(later, 500, "odd")
        assert later.headers["retry-after"] == "7"


def family(kind: type[GputError]) -> Iterator[type[GputError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in family(GputError) if kind.__module__ == shared.errors.__name__],
    ids=lambda kind: kind.__name__,
)
def test_an_error_comes_back_as_the_same_class(kind: type[GputError]) -> None:
    body = json.dumps({"title": kind.title, "code": "some-code", "detail": "d", "remedy": "r", "got": "g"}).encode()
    error = error_of(kind.status, body, "peer")
    assert type(error) is kind
    assert (error.code, error.detail, error.remedy, error.got) == ("some-code", "peer: d", "r", "g")


@pytest.mark.parametrize(
    ("status", "name"),
    [(400, "BadRequest"), (409, "Conflict"), (418, "BadRequest"), (502, "Unavailable"), (500, "GputError")],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"title": 5}', b"[" * 60_000], ids=lambda body: body[:9])
def test_an_answer_that_is_no_problem_is_still_an_error(status: int, name: str, body: bytes) -> None:
    error = error_of(status, body, "peer")
    assert type(error).__name__ == name
    assert str(status) in error.detail
    assert ("log of peer" in (error.remedy or "")) == (status >= 500)


@pytest.mark.parametrize(
    "code", ["Copy_Refused", "x" * 65, "two words", "copy-refused\ud800", "copy-refused\n", 7, ["a"], ""]
)
def test_a_code_that_is_none_is_not_taken_over(code: object) -> None:
    """It is stored, counted and said to others, who hold it to what a code is."""
    body = json.dumps({"title": Conflict.title, "code": code, "detail": "d"}).encode()
    assert error_of(409, body, "peer").code == "conflict"


def test_of_a_peers_texts_only_so_much_is_kept_and_nothing_that_steers_a_terminal() -> None:
    said = "\x1b[2J\ud800line\nnext" + "x" * 10_000
    fields = [{said: said}]
    body = json.dumps({"title": "?", "detail": said, "remedy": said, "got": said, "errors": fields}).encode()
    error = error_of(409, body, "peer")
    [[(name, value)]] = [entry.items() for entry in error.errors or []]
    for text in (error.detail.removeprefix("peer: "), error.remedy, error.got, name, value):
        assert text is not None
        assert text.startswith("?[2J?line\nnextx")
        assert len(text) == MAX_TEXT


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("0", 0.0), ("", None), ("-1", None), ("1.5", None), ("\u00b2", None), ("\u0663", None), ("9" * 400, None),
     ("999999999", MAX_RETRY_AFTER_S), ("Fri, 27 Nov 2026 11:00:00 GMT", None)],
)  # fmt: skip
def test_when_to_try_again_is_read_from_digits_only(said: str, seconds: float | None) -> None:
    assert retry_after_s(said) == seconds


async def test_openapi_documents_problems_only(world: World) -> None:
    async with world.client(None) as client:
        schema = (await client.get("/v1/openapi.json")).json()
    text = json.dumps(schema)
    assert "HTTPValidationError" not in text
    assert schema["components"]["schemas"]["Problem"]["required"][0] == "type"
    for path in schema["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                assert status.startswith("2") or list(answer["content"]) == ["application/problem+json"], (path, status)
            assert "application/problem+json" in operation["responses"]["4XX"]["content"]


async def test_probes_metrics_and_version(world: World) -> None:
    async with world.client(None) as client:
        assert (await client.get("/livez")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json() == {"status": "ready", "checks": {"database": "ok"}}
        assert (await client.get("/version")).json() == {"service": "test-service", "version": "1.2.3"}
        await client.get("/v1/whoami")
        text = (await client.get("/metrics")).text
    assert 'gput_http_requests_total{method="GET",route="/v1/whoami",status="401"} 1.0' in text
    assert "gput_store_commits_total" in text
    assert 'route="/livez"' in text


async def test_readiness_names_what_is_missing(world: World) -> None:
    from shared.service.state import service_state

    async def broken() -> None:
        raise RuntimeError("secret detail")

    async def absent() -> None:
        raise VerificationFailed("the clock is wrong")

    service_state(world.app).checks = {"a": broken, "b": absent}
    async with world.client(None) as client:
        response = await client.get("/readyz")
    document = check_shape(response, 503, "not-ready")
    assert document["checks"] == {"a": "the check itself failed; see the log", "b": "the clock is wrong"}


async def test_parts_that_hang_are_named_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another they would take longer than whoever asks waits."""
    from shared.service.state import service_state

    asked, met, both = set[str](), set[str](), asyncio.Event()

    def hanging(name: str) -> Callable[[], Awaitable[None]]:
        async def check() -> None:
            asked.add(name)
            if len(asked) == 2:
                both.set()
            await both.wait()
            met.add(name)
            await asyncio.Event().wait()

        return check

    monkeypatch.setattr("shared.service.app.CHECK_S", 0.2)
    service_state(world.app).checks = {"a": hanging("a"), "b": hanging("b")}
    async with world.client(None) as client:
        document = check_shape(await client.get("/readyz"), 503, "not-ready")
    assert (met, set(document["checks"])) == ({"a", "b"}, {"a", "b"})


async def test_the_type_of_a_problem_leads_to_its_page(world: World) -> None:
    async with world.client(None) as client:
        document = check_shape(await client.get("/v1/nothing"), 404, "not-found")
        page = await client.get(str(document["type"]), headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        assert page.headers["content-type"].startswith("text/html")
        assert "What to do" in page.text
        assert "<script" not in page.text
        policy = page.headers["content-security-policy"]
        style = page.text.partition("<style>")[2].partition("</style>")[0]
        assert "default-src 'none'" in policy
        assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
        told = (await client.get(str(document["type"]), headers={"accept": "application/json"})).json()
        assert (told["code"], told["type"]) == ("not-found", "/problems/not-found")
        assert all(told[part] for part in ("means", "why", "do"))
        assert (await client.get("/problems/not-found")).json() == told  # who says nothing is a program
        listed = (await client.get("/problems")).json()["problems"]
        assert told in listed
        assert 'href="/problems/vetoed"' in (await client.get("/problems", headers={"accept": "text/html"})).text


async def test_a_code_that_nobody_knows_has_no_page_and_is_not_shown(world: World) -> None:
    async with world.client(None) as client:
        response = await client.get("/problems/%3Cscript%3E", headers={"accept": "text/html"})
    check_shape(response, 404, "not-found")
    assert "<script>" not in response.json()["detail"]


def test_a_peers_code_makes_no_other_path() -> None:
    assert bare_problem(400, "a/../b?c", "t", "d")["type"] == "/problems/a%2F..%2Fb%3Fc"
