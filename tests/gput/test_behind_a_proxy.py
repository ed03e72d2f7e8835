"""A machine whose environment names a web proxy: what is said to services on this machine reaches them, and the proxy hears nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest


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
