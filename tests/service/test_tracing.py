"""Traces of visits: off by default whatever the environment says, one per visit, with nothing that is not on the list."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI, Request

from orchestrator.sessions.watching import Noted
from orchestrator.tracing import VisitSpans
from shared.errors import ConfigurationError
from shared.service.app import add_routes, create_service_app
from shared.service.http import Peers
from shared.service.logging import bind
from shared.service.settings import ServiceSettings
from shared.service.state import service_state
from shared.service.tracing import ALLOWED, Place, Tracing, allowed, outgoing, read_headers

HERE = "http://peer.test"


@pytest.fixture
def spans() -> tuple[Tracing, Any]:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    return Tracing("orchestrator", memory), memory


def test_a_header_is_read_as_w3c_says() -> None:
    place = Place.of_visit("v_1")
    assert place == Place.of_visit("v_1") != Place.of_visit("v_2")
    assert Place.of_header(place.header) == place
    assert place.child("a") != place.child("b")
    assert place.child("a").trace == place.trace
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert Place.of_header(good) == Place(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    bad = (
        "", good[:-2] + "00", good.upper(), good + "-x", good.replace("00-", "01-", 1),
        f"00-{0:032x}-b7ad6b7169203331-01", f"00-0af7651916cd43dd8448eb211c80319c-{0:016x}-01",
    )  # fmt: skip
    assert [Place.of_header(text) for text in bad] == [None] * len(bad)


def test_only_what_is_on_the_list_leaves() -> None:
    assert allowed({"gput.visit": "v", "gput.holder": "north", "exception.message": "x", "gput.session": object()}) == {
        "gput.visit": "v"
    }
    assert not [name for name in ALLOWED if "holder" in name or "party" in name or "detail" in name]


def test_a_visit_is_one_trace_of_its_steps(spans: tuple[Tracing, Any]) -> None:
    tracing, memory = spans
    durations = {"plan": 1.0, "train": 3.0, "close": 0.5}
    body = {
        "visit": "v_1", "round": 2, "attempt": 1, "holder": "north", "reason": "planted", "durations": durations,
    }  # fmt: skip
    VisitSpans(tracing).noted(Noted("s_1", "training.closed", body, 1000.0))
    tracing.request(Place.of_visit("v_1").header, "POST", "/v1/visits/{visit}/report", 204, 0.25)
    tracing.request("nonsense", "GET", "/v1/x", 200, 0.1)
    tracing.close()
    told = memory.get_finished_spans()
    assert {span.context.trace_id for span in told} == {Place.of_visit("v_1").trace}
    by_name = {span.name: span for span in told}
    root = by_name["visit"]
    assert root.parent is None
    assert dict(root.attributes) == {
        "gput.session": "s_1", "gput.visit": "v_1", "gput.outcome": "closed", "gput.round": 2, "gput.attempt": 1,
    }  # fmt: skip
    assert all(span.parent.span_id == root.context.span_id for span in told if span is not root)
    assert (root.start_time, root.end_time) == (int(995.5e9), int(1000e9))
    assert (by_name["orchestrator.train"].start_time, by_name["orchestrator.train"].end_time) == (
        int(996.5e9),
        int(999.5e9),
    )
    assert by_name["POST /v1/visits/{visit}/report"].attributes["http.response.status_code"] == 204
    assert len(told) == 5
    assert "north" not in "".join(span.to_json() for span in told)
    assert "planted" not in "".join(span.to_json() for span in told)


async def test_a_request_on_behalf_of_a_visit_says_so_only_where_traces_are_on() -> None:
    seen: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("traceparent"))
        return httpx2.Response(200, json={})

    for traced in (False, True):
        peers = Peers(transports={HERE: httpx2.MockTransport(answer)}, traced=traced)
        with bind(visit="v_1"):
            await peers.peer(HERE, "peer").get_json("/")
        await peers.peer(HERE, "peer").get_json("/")
        await peers.close()
    assert seen == [None, None, Place.of_visit("v_1").header, None]
    assert outgoing() == {}


def test_no_environment_turns_traces_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "FASTAPI_OTEL_AUTO_CONFIGURE",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_TRACES_EXPORTER",
        "OTEL_LOGS_EXPORTER",
    ):
        monkeypatch.setenv(name, "true" if "AUTO" in name else "http://127.0.0.1:9")
    app = create_service_app("test", "1", settings=ServiceSettings(data_dir=tmp_path))
    assert service_state(app).tracing is None
    off = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
    assert off.items() <= app._telemetry.items()
    assert not app._native_telemetry.enabled()


def test_without_the_extra_the_setting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match="not installed"):
        create_service_app("test", "1", settings=ServiceSettings(data_dir=tmp_path, otlp_endpoint=HERE))
    with pytest.raises(ConfigurationError, match="otlp_endpoint"):
        ServiceSettings.load(data_dir=tmp_path, otlp_endpoint="http://user:password@host")


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    heard: list[tuple[str, dict[str, str], bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


PLANTED = {
    "OTEL_EXPORTER_OTLP_HEADERS": "x-planted=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-planted=2",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/elsewhere", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "/planted.pem", "OTEL_RESOURCE_ATTRIBUTES": "planted=1",
}  # fmt: skip


def _believing(app: FastAPI) -> None:
    """A route that knows its caller."""
    router = APIRouter()

    @router.get("/believed")
    async def believed(request: Request) -> None:
        request.scope["gput.caller"] = "north"

    add_routes(app, router)


@pytest.mark.parametrize("content", [b"no header", b"a b: c", b"a:", b"\xff: x", None])
def test_a_file_of_no_headers_is_refused_without_its_values(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "headers").write_bytes(b"x-key: secret\n" + content)
    with pytest.raises(ConfigurationError) as refused:
        read_headers(tmp_path / "headers")
    assert refused.value.code == "otlp-headers"
    assert "secret" not in str(refused.value)


async def test_a_service_sends_its_part_to_the_collector_that_is_set(
    tmp_path: Path, collector: tuple[str, list[tuple[str, dict[str, str], bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    wire = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "headers").write_text("x-collector-key: k 1\n\nAuthorization:Bearer=x \n")
    monkeypatch.setitem(os.environ, "HTTP_PROXY", "http://127.0.0.1:9")
    url, heard = collector
    app = create_service_app(
        "test",
        "1",
        settings=ServiceSettings(data_dir=tmp_path, otlp_endpoint=url, otlp_headers_file=tmp_path / "headers"),
    )
    assert {name: os.environ[name] for name in PLANTED} == PLANTED
    _believing(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://service") as client,
    ):
        for path in ("/believed?private=1", "/version"):
            await client.get(path, headers={"traceparent": Place.of_visit("v_1").header})
        await client.get("/believed")
    [(path, headers, body)] = heard
    assert path == "/v1/traces"
    assert (headers["x-collector-key"], headers["authorization"]) == ("k 1", "Bearer=x")
    assert not [name for name in headers if name.startswith("x-planted") or name == "content-encoding"]
    [resource] = wire.ExportTraceServiceRequest.FromString(body).resource_spans
    assert [(each.key, each.value.string_value) for each in resource.resource.attributes] == [("service.name", "test")]
    [span] = resource.scope_spans[0].spans
    assert span.name == "GET /believed", "who is not known adds to no trace"
    assert int.from_bytes(span.trace_id) == Place.of_visit("v_1").trace
    assert b"private" not in body
