"""`gput doctor`'s own checks, each met well, doubtful and failing; and a table that says what to do."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from gpu_agent import api as agent
from gpu_agent.evidence import api as evidence
from gpu_agent.platform import api as platform
from gput import hops
from gput.commands import doctor
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, GputError, Unavailable
from tests.gput.test_doctor_pair import LEADS, serving
from tests.gput.test_gput_commands import run
from tests.world.world_material import Material

DAY = 86_400.0


def test_a_key_that_others_can_read_is_a_doubt(tmp_path: Path) -> None:
    PartyKey.generate().save(tmp_path / "k.pem")
    assert "fingerprint" in hops.key_file(tmp_path / "k.pem")
    (tmp_path / "k.pem").chmod(0o644)
    with pytest.raises(GputError) as found:
        hops.key_file(tmp_path / "k.pem")
    assert isinstance(found.value, hops.Doubt | ConfigurationError)
    with pytest.raises(ConfigurationError):
        hops.key_file(tmp_path / "absent")


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5 << 30))
    assert hops.room(tmp_path) == "5.0 GiB free"
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5 << 20))
    with pytest.raises(hops.Doubt):
        hops.room(tmp_path)


def test_the_age_of_collateral(gput_material: Material, tmp_path: Path) -> None:
    trust = gput_material.copy(tmp_path / "installation") / "trust"
    (bundle,) = [path for path in (trust / "collateral").iterdir() if path.is_file()][:1]
    import time

    now = time.time()
    said = hops.collateral(trust, now)
    assert said.startswith("good for ")
    left = int(said.split()[2])
    with pytest.raises(hops.Doubt) as soon:
        hops.collateral(trust, now + (left - 1) * DAY)
    assert bundle.name in soon.value.detail
    with pytest.raises(Unavailable) as over:
        hops.collateral(trust, now + (left + 2) * DAY)
    assert (over.value.code, over.value.remedy is not None) == ("collateral-expired", True)
    for path in (trust / "collateral").iterdir():
        path.unlink()
    assert hops.collateral(trust, now).startswith("none at hand")
    with pytest.raises(ConfigurationError):
        hops.collateral(tmp_path / "absent", now)


def test_when_a_holder_was_heard_of() -> None:
    assert hops.heard("north", 100.0, 107.0) == "heard of 7 s ago"
    for seen in (None, 100.0):
        with pytest.raises(hops.Doubt) as found:
            hops.heard("north", seen, 1000.0)
        assert "north" in found.value.detail


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that speaks no TLS."""

    class Plain(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


async def test_tls(closed: int) -> None:
    assert await hops.tls("http://127.0.0.1:1") == "none, on loopback"
    with pytest.raises(hops.Doubt) as plain:
        await hops.tls("http://orchestrator.example")
    assert plain.value.code == "no-tls"
    with pytest.raises(Unavailable) as found:
        await hops.tls(f"https://127.0.0.1:{closed}")
    assert found.value.code == "tls"


async def test_a_certificate_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the TLS library says of a certificate becomes a word for people."""

    class Writer:
        def __init__(self, ends: str) -> None:
            self.ends = ends

        def get_extra_info(self, name: str) -> dict[str, str]:
            return {"notAfter": self.ends}

        def close(self) -> None:
            return

    async def opened(*_: object, **more: object) -> tuple[None, Writer]:
        assert more["server_hostname"] == "orchestrator.example"
        return None, Writer(next(ends))

    ends = iter(["Jan  1 00:00:00 2100 GMT", "Jan  1 00:00:00 2020 GMT"])
    monkeypatch.setattr("asyncio.open_connection", opened)
    assert (await hops.tls("https://orchestrator.example")).startswith("certificate good for")
    with pytest.raises(hops.Doubt):
        await hops.tls("https://orchestrator.example")

    async def refused(*_: object, **__: object) -> None:
        error = ssl.SSLCertVerificationError("bad")
        error.verify_message = "Hostname mismatch"
        raise error

    monkeypatch.setattr("asyncio.open_connection", refused)
    with pytest.raises(Unavailable) as found:
        await hops.tls("https://orchestrator.example")
    assert (found.value.code, "Hostname mismatch" in found.value.detail) == ("tls-certificate", True)


def test_each_part_of_a_service_is_a_row_and_the_failing_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    broken = LEADS | {"database": "the database cannot be reached", "data_dir": "ok"}
    with serving(broken) as url:
        code, out, err = run(capsys, "doctor", "--url", url, "--format", "json")
    rows = {row["hop"]: row for row in json.loads(out)}
    assert (code, "failing: orchestrator: database" in err) == (6, True)
    assert rows["orchestrator: database"]["detail"] == "the database cannot be reached [not-ready]"
    assert rows["orchestrator: database"]["remedy"]
    assert [
        rows[f"orchestrator: {name}"]["result"] for name in ("reachable", "TLS", "clock", "leading", "data_dir")
    ] == ["ok"] * 5
    assert rows["here: room on the disk"]["result"] in ("ok", "warning")


def test_a_service_that_says_nothing_of_itself_is_named_and_the_others_looked_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database hangs: that is what a doctor is for."""
    monkeypatch.setattr(doctor, "READY_S", 0.2)
    held = threading.Event()
    with serving(LEADS, held=held) as url, serving(LEADS, agent.TITLE) as other:
        code, out, err = run(capsys, "doctor", "--url", url, "--agent-url", other, "--format", "json")
        held.set()
    rows = {row["hop"]: row for row in json.loads(out)}
    assert (code, "failing: orchestrator: ready" in err) == (6, True)
    assert rows["orchestrator: ready"]["remedy"]
    assert rows["agent: database"]["result"] == "ok"


def test_a_service_has_time_to_say_which_of_its_parts_hangs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for each as long as the doctor waits for anything else."""
    monkeypatch.setattr(doctor, "TIMEOUT_S", 1.0)
    held = threading.Event()
    with serving(LEADS | {"database": "no answer within 5 s"}, held=held) as url:
        later = threading.Timer(1.5, held.set)
        later.start()
        code, out, _ = run(capsys, "doctor", "--url", url, "--format", "json")
        later.join()
    rows = {row["hop"]: row for row in json.loads(out)}
    assert (code, rows["orchestrator: database"]["detail"]) == (6, "no answer within 5 s [not-ready]")


@pytest.mark.parametrize(("flag", "hop", "service", "other"), [
    ("--url", "orchestrator", "orchestrator", "gput data holder"),
    ("--holder-url", "holder 1", "gput data holder", "orchestrator"),
    ("--agent-url", "agent", agent.TITLE, platform.TITLE),
    ("--agent-url", "agent", evidence.TITLE, platform.TITLE),
    ("--platform-url", "platform", platform.TITLE, agent.TITLE),
    ("--platform-url", "platform", platform.TITLE, ""),
])  # fmt: skip
def test_a_hop_is_the_service_that_is_meant(
    flag: str, hop: str, service: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(name: str) -> tuple[int, dict[str, str]]:
        with serving(LEADS) as url, serving(LEADS, name) as asked:
            code, out, _ = run(capsys, "doctor", "--url", url, flag, asked, "--format", "json")
        return code, next(row for row in json.loads(out) if row["hop"] == f"{hop}: reachable")

    code, row = told(service)
    assert (code, row["result"]) == (0, "ok")
    code, row = told(other)
    assert (code, row["result"]) == (6, "failed")
    assert f"{other!r} answers at" in row["detail"]
    assert row["detail"].endswith("[wrong-service]")


def test_some_other_program_at_an_address_is_no_service() -> None:
    for said in (None, [], {}, {"service": 1}):
        with pytest.raises(Unavailable, match="does not say which service it is") as found:
            hops.named("agent", "http://127.0.0.1:1", said)
        assert found.value.code == "wrong-service"


def test_what_keeps_an_address_from_answering_is_told_apart(
    closed: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def told(url: str) -> str:
        code, out, _ = run(capsys, "doctor", "--url", url, "--format", "json")
        assert code == 6
        return next(str(row["detail"]) for row in json.loads(out) if row["hop"] == "orchestrator: reachable")

    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = server.getsockname()[1]
    assert "refused" in told(f"http://127.0.0.1:{gone}")
    assert "does not speak TLS" in told(f"https://127.0.0.1:{closed}")
    assert "has a port that is none" in told("http://127.0.0.1:99999")
    monkeypatch.setattr("asyncio.BaseEventLoop.getaddrinfo", unknown)
    assert "no host of that name" in told("http://orchestrator.example")


def test_why_no_answer_came() -> None:
    certificate = ssl.SSLCertVerificationError("bad")
    certificate.verify_message = "Hostname mismatch"
    error = httpx2.ConnectError("failed")
    error.__cause__ = certificate
    assert hops.unreachable(error) == ("its certificate is not accepted: Hostname mismatch", hops.ROOT_REMEDY)
    assert hops.unreachable(httpx2.ReadTimeout("slow"))[0] == "nothing answers at that address (ReadTimeout)"


def test_a_key_that_is_none_ends_in_a_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with serving(LEADS) as url:
        code, out, err = run(capsys, "doctor", "--url", url, "--key", str(tmp_path / "absent"), "--format", "json")
    assert (code, "failing: here: your key" in err) == (6, True)
    assert "[key-file]" in next(row["detail"] for row in json.loads(out) if row["hop"] == "here: your key")


@pytest.mark.parametrize("date", [None, "tomorrow", "Mon, 99 Jan 99999 00:00:00 GMT"])
async def test_a_program_that_says_no_time_breaks_no_examination(date: str | None) -> None:
    headers = {} if date is None else {"date": date}
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(200, headers=headers))
    async with httpx2.AsyncClient(transport=transport) as http:
        assert await doctor._clock(http, "http://somebody.test") == "it does not say its time"


async def test_an_answer_that_cannot_be_read_is_a_row() -> None:
    def packed(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"not packed at all")
        )

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(packed)) as http:
        [row] = await doctor._service(http, "agent", "http://127.0.0.1:1")
    assert (row["hop"], row["result"]) == ("agent: reachable", "failed")
    assert "cannot be read (DecodingError)" in row["detail"]
    assert row["remedy"]


def test_a_working_folder_that_is_gone_is_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with serving(LEADS) as url:
        code, out, err = run(capsys, "doctor", "--url", url, "--format", "json")
    rows = {row["hop"]: row for row in json.loads(out)}
    assert (code, "failing: here: room on the disk" in err) == (6, True)
    assert rows["here: room on the disk"]["detail"] == "No such file or directory"
    assert rows["orchestrator: reachable"]["result"] == "ok"
