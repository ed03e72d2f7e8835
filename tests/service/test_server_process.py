"""A service as a real process: ready line, busy port, clean stop while others wait, exit codes, death of the parent; SSE and long-poll."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import BadRequest, Unavailable
from shared.service.event_reader import Event, iter_sse
from shared.service.http import PeerClient, Peers
from tests.cores import writes_none

SCRIPT = str(Path(__file__).with_name("echo_service.py"))
ROOT = str(Path(__file__).parents[2])

pytestmark = pytest.mark.processes


class Process:
    """One running echo service."""

    def __init__(self, folder: Path, arguments: tuple[str, ...] = (), **settings: object) -> None:
        variables = {f"ECHO_{name.upper()}": str(value) for name, value in settings.items()}
        self.child = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "ECHO_DATA_DIR": str(folder), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = ""

    def wait_ready(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        ready: dict[str, Any] = json.loads(line)
        self.url = ready["ready"]
        return ready

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float, str]:
        began = time.monotonic()
        self.child.send_signal(number)
        _, errors = self.child.communicate(timeout=60)
        return self.child.returncode, time.monotonic() - began, errors


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, shutdown_deadline_s=4)
    process.wait_ready()
    yield process
    if process.child.poll() is None:
        process.stop()


async def test_ready_line_and_clean_stop(tmp_path: Path) -> None:
    process = Process(tmp_path, greeting="moin")
    ready = process.wait_ready()
    assert ready["backend"] == "EMULATED"
    async with Peers() as peers:
        answer = await peers.peer(process.url, "echo").get_json("/greeting")
    assert answer == {"greeting": "moin", "base_url": ready["ready"]}
    code, _, errors = process.stop()
    assert code == 0
    for line in errors.splitlines():
        assert json.loads(line)["component"]


def test_a_service_leaves_nothing_of_its_memory_when_it_crashes(echo: Process) -> None:
    assert writes_none(echo.child.pid)


async def test_what_a_service_began_with_is_never_searched_for_cycles(echo: Process) -> None:
    async with Peers() as peers:
        seen = await peers.peer(echo.url, "echo").get_json("/cycles")
    assert seen["left_out"] > 20 * seen["looked_at"] > 0
    assert (seen["kept"], seen["found"] > 0) == (False, True), "what came later is"


async def events_of(client: PeerClient, after: int | None = None, limit: int = 100) -> list[Event]:
    headers = {} if after is None else {"last-event-id": str(after)}
    found: list[Event] = []
    async with client.stream("GET", "/events", headers=headers, timeout_s=5) as response:
        async for event in iter_sse(response):
            found.append(event)
            if len(found) == limit:
                break
    return found


async def test_events_are_replayed_then_live(echo: Process) -> None:
    async with Peers() as peers:
        client = peers.peer(echo.url, "echo")
        for _ in range(5):
            await client.post_json("/events?kind=step", None)
        assert [event.id for event in await events_of(client, limit=5)] == [1, 2, 3, 4, 5]
        live = asyncio.ensure_future(events_of(client, after=3))
        await asyncio.sleep(0.6)  # three keep-alive comments pass, which are no events
        await client.post_json("/events?kind=end", None)
        async with asyncio.timeout(60):
            found = await live
        assert [(event.id, event.event) for event in found] == [(4, "step"), (5, "step"), (6, "end")]
        assert found[0].data == {"line": "a\nb", "n": 4}
        with pytest.raises(BadRequest) as caught:
            await client.request("GET", "/events", headers={"last-event-id": "x"})
        assert caught.value.code == "invalid-event-id"


async def test_keep_alive_is_a_comment(echo: Process) -> None:
    async with Peers() as peers, peers.peer(echo.url, "echo").stream("GET", "/events", timeout_s=5) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        text = ""
        async for chunk in response.aiter_text():
            text += chunk
            if ": ping" in text:
                break
    assert text.startswith("retry: 1000\n\n")


async def test_long_poll(echo: Process) -> None:
    async with Peers() as peers:
        client = peers.peer(echo.url, "echo")
        began = time.monotonic()
        assert await client.get_json("/poll?seen=0&wait=0.2") == {"version": 0}
        assert time.monotonic() - began > 0.15
        waiting = asyncio.ensure_future(client.get_json("/poll?seen=0&wait=8"))
        await asyncio.sleep(0.1)
        await client.post_json("/events?kind=x", None)
        async with asyncio.timeout(60):
            assert await waiting == {"version": 1}
        assert await client.get_json("/poll?seen=0&wait=8") == {"version": 1}


async def test_those_who_wait_do_not_hold_up_a_stop(echo: Process) -> None:
    async with Peers() as peers:
        client = peers.peer(echo.url, "echo")
        waiting = asyncio.ensure_future(client.get_json("/poll?seen=0&wait=60", timeout_s=70))
        stream = asyncio.ensure_future(events_of(client))
        await asyncio.sleep(0.3)
        code, seconds, _ = await asyncio.to_thread(echo.stop)
        assert (code, seconds < 30) == (0, True)  # far from the 60 s that they asked for
        assert await waiting == {"version": 0}
        assert await stream == []


async def test_a_running_request_is_finished_or_cut_at_the_deadline(tmp_path: Path) -> None:
    process = Process(tmp_path, shutdown_deadline_s=4)
    process.wait_ready()
    async with Peers() as peers:
        client = peers.peer(process.url, "echo")
        short = asyncio.ensure_future(client.get_json("/slow?seconds=0.5"))
        long = asyncio.ensure_future(client.request("GET", "/slow?seconds=60", attempts=1))
        await asyncio.sleep(0.2)
        code, seconds, _ = await asyncio.to_thread(process.stop, signal.SIGINT)
        assert (code, seconds < 30) == (0, True)  # far from the 60 s of the long one
        assert await short == {"slept": 0.5}
        with pytest.raises(Exception, match="echo"):
            await long


def finish(process: Process) -> tuple[int, str]:
    _, errors = process.child.communicate(timeout=60)
    return process.child.returncode, errors


def test_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, errors = finish(Process(tmp_path, port=port))
    assert code == 2
    assert f"port {port} on 127.0.0.1 is in use" in errors
    assert "remedy:" in errors


def test_refusals_have_their_exit_codes(tmp_path: Path) -> None:
    config = tmp_path / "echo.toml"
    config.write_text("greting = 'x'\n")
    code, errors = finish(Process(tmp_path, ("--config", str(config))))
    assert (code, "setting greting" in errors) == (2, True)
    code, errors = finish(Process(tmp_path, refuse=True))
    assert (code, "quoting enclave" in errors, "Start the platform first." in errors) == (6, True, True)
    code, errors = finish(Process(tmp_path, host="192.0.2.1"))
    assert (code, "cannot listen" in errors) == (2, True)


def test_dies_with_its_parent(tmp_path: Path) -> None:
    starter = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {SCRIPT!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    variables = {"ECHO_DATA_DIR": str(tmp_path), "ECHO_DIE_WITH_PARENT": "true", "PYTHONPATH": ROOT}
    parent = subprocess.Popen(
        [sys.executable, "-c", starter],
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert "ready" in json.loads(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_absent_peer_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with Peers(sleep=sleep) as peers:
        client = peers.peer(url, "orchestrator")
        with pytest.raises(Unavailable, match=r"orchestrator at http://127\.0\.0\.1:") as caught:
            await client.get_json("/x")
        assert caught.value.code == "peer-unreachable"
        assert len(pauses) == 3
        assert pauses == sorted(pauses)
        with pytest.raises(Unavailable):
            await client.post_json("/x", {})
        assert len(pauses) == 3  # a POST without a key is not repeated
        with pytest.raises(Unavailable):
            await client.post_json("/x", {}, idempotency_key="k")
        assert len(pauses) == 6
    with pytest.raises(BadRequest):
        Peers().peer("ftp://x", "x")


async def test_slow_peer_is_named(echo: Process) -> None:
    async with Peers() as peers:
        with pytest.raises(Unavailable) as caught:
            await peers.peer(echo.url, "echo").get_json("/slow?seconds=5", timeout_s=0.2)
    assert caught.value.code == "peer-timeout"
