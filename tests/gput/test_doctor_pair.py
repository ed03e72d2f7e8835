"""`gput doctor` over an orchestrator and its standby: one leads and one stands by is well, anything else is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.gput.test_gput_commands import run

LEADS = {"database": "ok", "leading": "ok"}
STANDS_BY = {
    "database": "ok",
    "leading": "this orchestrator does not lead: it stands by, and another orchestrator leads",
}


@contextmanager
def serving(
    checks: dict[str, str], service: str = "orchestrator", *, held: threading.Event | None = None
) -> Iterator[str]:
    """A service's probes; an orchestrator's unless said otherwise. `held`: until when it says nothing of itself."""

    class Probes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/readyz" and held is not None:
                held.wait(60)
            ready = self.path != "/readyz" or set(checks.values()) == {"ok"}
            self.send_response(200 if ready else 503)
            self.end_headers()
            said = {"service": service, "version": "1"} if self.path == "/version" else {"checks": checks}
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Probes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("pair", "code", "last", "failing"),
    [
        ((STANDS_BY, LEADS), 0, "orchestrator 2 leads", 0),
        ((STANDS_BY, STANDS_BY), 6, "none of them lead [no-leader]", 1),
        ((LEADS, LEADS), 6, "2 of them lead [no-leader]", 1),
        ((LEADS, STANDS_BY | {"database": "it cannot be reached"}), 6, "orchestrator 1 leads", 1),
    ],
)  # fmt: skip
def test_who_leads(
    capsys: pytest.CaptureFixture[str], pair: tuple[dict[str, str], ...], code: int, last: str, failing: int
) -> None:
    with ExitStack() as stack:
        urls = ",".join(stack.enter_context(serving(checks)) for checks in pair)
        got, out, _ = run(capsys, "doctor", "--url", urls, "--format", "json")
    rows = json.loads(out)
    assert (got, rows[-1]["detail"]) == (code, last)
    assert len([row for row in rows if row["result"] != "ok"]) == failing
