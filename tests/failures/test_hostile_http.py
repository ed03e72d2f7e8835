"""Malformed, oversized, half-sent and slow requests at real sockets: a problem or a closed connection, never a 5xx; life goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gput.local.installation import GPU, HolderSpec, Installation, to_toml
from tests.adversary.rows import attack

pytestmark = pytest.mark.processes
NOWHERE = "http://127.0.0.1:9"
BIG = 5 * 1024 * 1024
LIMIT_S = 20.0


def serve(place: Path, module: str, settings: dict[str, Any]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a service as a process; with its address once it serves."""
    config = place / f"{module}.toml"
    config.write_text(to_toml({"die_with_parent": True, **settings}))
    with (place / f"{module}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--config", str(config)], stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (place / f"{module}.log").read_text()
    return process, str(json.loads(line)["ready"])


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Every service as a process. Each serves without the others; the orchestrator alone needs its quoting enclave to start."""
    place = tmp_path_factory.mktemp("hostile") / "it"
    Installation(place, [HolderSpec("city", {})]).prepare()

    def cvm(name: str, enclave: str) -> dict[str, Any]:
        return {"evidence": f"emulated:{enclave}/cvms/{name}", "evidence_token_file": place / "cvms" / f"{name}.token",
                "trust_dir": place / "trust", "allow_emulated": True}  # fmt: skip

    wanted: dict[str, Callable[[], dict[str, Any]]] = {
        "gpu_agent.platform": lambda: {"data_dir": place, "agent_url": NOWHERE,
                                       "orchestrator_key": place / "orchestrator" / "orchestrator.pub"},
        "gpu_agent": lambda: {"data_dir": place / "agent", "device_dir": place / "devices" / GPU, "hbm_bytes": 1 << 28,
                              "platform_key": place / "platform" / "mux.pub"},
        "data_holder": lambda: {"name": "city", "data_dir": place / "holder-city", "orchestrator_url": NOWHERE,
                                **cvm("holder-city", NOWHERE)},
        "orchestrator": lambda: {"data_dir": place / "orchestrator", "owner_keys": place / "owners", "agent_url": NOWHERE,
                                 "platform_url": NOWHERE, **cvm("orchestrator", found["gpu_agent.platform"])},
    }  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    found: dict[str, str] = {}
    try:
        for module, settings in wanted.items():
            process, found[module] = serve(place, module, settings())
            running.append(process)
        found["token"] = (place / "holder-city" / "operator.token").read_text().strip()
        yield found
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(15)


ROUTES = {
    "gpu_agent": [f"POST /v1/gpus/{GPU}/ports/orchestrator/spdm", f"POST /v1/gpus/{GPU}/ports/orchestrator/commands",
                  f"POST /v1/gpus/{GPU}/ports/holder-city/copy", f"PUT /v1/platform/gpus/{GPU}/mux",
                  "POST /v1/gpus/..%2f..%2fetc/ports/orchestrator/spdm", "POST /v1/gpus/none/ports/x/copy"],
    "gpu_agent.platform": [f"PUT /v1/gpus/{GPU}/mux", "POST /cvms/orchestrator/quote", "POST /cvms/orchestrator/derived-key",
                           "POST /cvms/..%2f..%2fetc%2fpasswd/quote", "POST /cvms/%00/quote"],
    "data_holder": ["POST /v1/datasets", "POST /v1/requests/s_x/approve", "POST /v1/datasets/..%2f..%2fx/inspect",
                    "GET /v1/visits/..%2f..%2fstate.db", "DELETE /v1/datasets/%00", "POST /v1/policy/check"],
    "orchestrator": ["POST /v1/sessions", "POST /v1/sessions/s_x/approvals", "PUT /v1/programs/..%2f..%2fx/archive",
                     "PUT /v1/weights/%00", "POST /v1/parties", "POST /v1/sessions/..%2f..%2fx/channels",
                     "POST /v1/visits/v_x/report", "GET /v1/sessions/%00/receipts"],
}  # fmt: skip
BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "application/json"), "not json": (b"{", "application/json"), "null": (b"null", "application/json"),
    "list": (b"[]", "application/json"), "nan": (b'{"port": NaN}', "application/json"),
    "deep": (b"[" * 100_000, "application/json"), "not utf-8": (b'{"port": "\xff\xfe"}', "application/json"),
    "surrogate": (b'{"port": "\\ud800", "name": "\\ud800", "path": "\\ud800", "label": "\\ud800"}', "application/json"),
    "nul": (b'{"port": "\\u0000", "name": "\\u0000", "path": "\\u0000"}', "application/json"),
    "huge number": (b'{"port": ' + b"9" * 5000 + b"}", "application/json"),
    "twice": (b'{"port": "a", "port": "b"}', "application/json"),
    "wrong type": (b"<a/>", "text/xml"), "form": (b"port=orchestrator", "application/x-www-form-urlencoded"),
    "noise": (bytes(range(256)) * 16, "application/octet-stream"), "absent type": (b"{}", ""),
    "cbor bomb": (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "application/cbor"),
    "oversized": (b"x" * BIG, "application/json"),
}  # fmt: skip


def exchange(url: str, raw: bytes, seconds: float = LIMIT_S) -> bytes:
    """Send raw bytes, read until the peer closes or has answered."""
    at = urlsplit(url)
    with socket.create_connection((str(at.hostname), int(at.port or 0)), timeout=seconds) as connection:
        with contextlib.suppress(OSError):  # refused before it was read whole: an answer may still lie there
            connection.sendall(raw)
        try:
            return connection.recv(1 << 16)
        except (TimeoutError, ConnectionResetError):
            return b""


def request(url: str, route: str, body: bytes, kind: str, *extra: str) -> bytes:
    method, path = route.split(" ")
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    lines += ([f"Content-Type: {kind}"] if kind else []) + list(extra)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def alive(url: str) -> None:
    answer = exchange(url, request(url, "GET /livez", b"", ""))
    assert b" 200 " in answer.split(b"\r\n")[0], answer


@attack("O01", any="stopped: strict bodies, limits, nothing without authority")
@pytest.mark.parametrize("service", sorted(ROUTES))
def test_bodies_of_every_shape(service: str, urls: dict[str, str]) -> None:
    url = urls[service]
    for route in ROUTES[service]:
        for name, (body, kind) in BODIES.items():
            # The holder's operator is let in, so that its handlers see the bodies; elsewhere strangers reach what is public.
            door = [f"Authorization: Bearer {urls['token']}"] if service == "data_holder" else []
            answer = exchange(url, request(url, route, body, kind, *door))
            status = answer.split(b"\r\n")[0]
            assert b" 4" in status, (route, name, answer[:400])
            assert b"application/problem+json" in answer, (route, name, answer[:400])
    alive(url)


HALVES = {
    "a word": b"GE", "a line": b"GET /livez HTTP/1.1\r\n", "no body": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    "half a body": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n{",
    "half a chunk": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
}  # fmt: skip
BROKEN = {
    "noise": b"\x00\x01\x02\r\n\r\n", "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "bad length": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "long line": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("service", sorted(ROUTES))
def test_half_sent_and_slow_requests_hold_nobody_up(service: str, urls: dict[str, str]) -> None:
    at = urlsplit(urls[service])
    slow = [socket.create_connection((str(at.hostname), int(at.port or 0)), timeout=LIMIT_S) for _ in range(64)]
    try:
        for number, connection in enumerate(slow):
            connection.sendall(list(HALVES.values())[number % len(HALVES)])
        begun = time.monotonic()
        alive(urls[service])
        assert time.monotonic() - begun < LIMIT_S
    finally:
        for connection in slow:
            connection.close()
    for name, raw in BROKEN.items():
        first = exchange(urls[service], raw, 2.0).split(b"\r\n")[0]
        assert first == b"" or b" 4" in first, (name, first)
    alive(urls[service])


def test_the_memory_of_a_service_does_not_follow_what_strangers_claim(urls: dict[str, str]) -> None:
    """A declared length of a terabyte is refused at once, unread."""
    for url in (urls[service] for service in ROUTES):
        raw = request(url, "POST /v1/x", b"", "application/json").replace(
            b"Content-Length: 0", b"Content-Length: 1099511627776"
        )
        answer = exchange(url, raw)
        assert b" 4" in answer.split(b"\r\n")[0], answer[:200]
