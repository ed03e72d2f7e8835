"""A machine whose environment names a web proxy: what is said to services on this machine reaches them, and the proxy hears nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gput.local.demo import Demo
from gput.local.demos.texts import Texts
from gput.local.process import Service


class Server:
    """Answers every GET with an empty object, and remembers what was asked, with which credentials."""

    def __init__(self, refused: str = "") -> None:
        heard = self.heard = list[tuple[str, str | None]]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append((self.path, self.headers.get("authorization")))
                self.send_response(503 if self.path == refused else 200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    named = Server()
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, named.url)
    yield named
    named.close()


@pytest.mark.parametrize(("words", "path"), [((), "/readyz"), (("/livez",), "/livez")], ids=["ready", "alive"])
def test_a_health_check_asks_the_service_itself(proxy: Server, words: tuple[str, ...], path: str) -> None:
    for refused, code in (("", 0), (path, 1)):
        service = Server(refused)
        environment = {**os.environ, "GPUT_PROBE_URL": service.url}
        asked = subprocess.run([sys.executable, "-m", "gput.local.probe", *words], env=environment, check=False)
        service.close()
        assert (asked.returncode, service.heard) == (code, [(path, None)])
    assert proxy.heard == []


async def test_a_demo_gives_an_operators_token_to_that_operators_service_alone(proxy: Server, tmp_path: Path) -> None:
    demo, holder = Demo(tmp_path, Texts(), lambda _: None), Server()
    name = next(iter(demo.plan.holders))
    demo.installation.services[f"holder-{name}"] = service = Service(name, [], {}, tmp_path / "log")
    service.ready = {"ready": holder.url}
    token = demo.installation.operator_token(name)
    token.parent.mkdir(parents=True)
    token.write_text("word\n")
    assert await demo._links(name) == {"holder": name}
    assert holder.heard == [("/v1/links", "Bearer word")]
    assert proxy.heard == []
    holder.close()
