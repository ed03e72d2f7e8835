"""The agent as a real process over loopback HTTP: a whole visit, whose records are then nowhere in its memory; a clean end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shared.crypto.signing import PartyKey
from shared.errors import GputError
from shared.names import ORCHESTRATOR_PORT
from shared.service.clock import system_clock, system_entropy
from shared.service.problem_reader import error_of
from shared.service.signatures import SignedAuth
from shared.wire import gpu
from shared.wire.codec import decode
from shared.wire.copy import CopyAck
from tests.gpu.gpu_world import NOW, RECORD_BYTES, World, device_folder, records
from tests.gpu.test_gpu_scrub import descendants, held_by, windows

pytestmark = pytest.mark.processes


class RemoteDevice:
    """A device behind HTTP, with the three doors of `Device`; switches the MUX as the platform would."""

    def __init__(self, url: str, key: PartyKey) -> None:
        self.client = httpx2.Client(base_url=url, timeout=60)
        self._auth = SignedAuth(key, system_clock, system_entropy)
        self._bound = ""

    def bind(self, port: str) -> None:
        if port != self._bound:
            answer = self.client.put("/v1/platform/gpus/gpu-0/mux", json={"port": port}, auth=self._auth)
            assert answer.status_code == 200, answer.text
            self._bound = port

    def _post(self, port: str, door: str, body: bytes) -> bytes:
        self.bind(port)
        answer = self.client.post(f"/v1/gpus/gpu-0/ports/{port}/{door}", content=body)
        if answer.status_code != 200:
            raise error_of(answer.status_code, answer.content, "agent")
        return answer.content

    def spdm(self, message: bytes) -> bytes:
        return self._post(ORCHESTRATOR_PORT, "spdm", message)

    def commands(self, frame: bytes) -> bytes:
        return self._post(ORCHESTRATOR_PORT, "commands", frame)

    def copy(self, port: str, record: bytes) -> CopyAck:
        return decode(CopyAck, self._post(port, "copy", record))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], RemoteDevice]]:
    key = PartyKey.generate()
    (tmp_path / "mux.pub").write_bytes(key.public_pem)
    settings = {
        "GPUT_AGENT_DATA_DIR": str(tmp_path / "agent"), "GPUT_AGENT_DEVICE_DIR": str(device_folder()),
        "GPUT_AGENT_PLATFORM_KEY": str(tmp_path / "mux.pub"), "GPUT_AGENT_DIE_WITH_PARENT": "true",
        "GPUT_AGENT_LOG_FORMAT": "json",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "gpu_agent"],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert running.stdout is not None
    try:
        line = running.stdout.readline()
        assert line, (tmp_path / "log").read_text()
        yield running, RemoteDevice(json.loads(line)["ready"], key)
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z"]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def remote_world(device: Any) -> World:
    world = World(device, None, None, [NOW], [])  # type: ignore[arg-type]  # memory and compute are another process's
    world.epochs = itertools.count(1)
    return world


def test_a_visit_over_http_leaves_no_record_in_the_agent(process: tuple[subprocess.Popen[bytes], RemoteDevice]) -> None:
    running, device = process
    world = remote_world(device)
    world.set_up()
    data = bytearray(records(64))
    floats = [0x3F800000 | int.from_bytes(os.urandom(2), "little") << 7 | index for index in range(16)]
    data[5 * RECORD_BYTES : 5 * RECORD_BYTES + 64] = b"".join(f.to_bytes(4, "little") for f in floats)
    needles = windows(bytes(data[5 * RECORD_BYTES : 5 * RECORD_BYTES + 64]))
    holder = world.visit(bytes(data), expires_at=int(time.time()) + 600)
    assert world.train(holder, steps=8).state == "done"
    world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit))
    deadline = time.monotonic() + 60
    while len(descendants(running.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    pids = [running.pid, *descendants(running.pid)]
    assert len(pids) == 3  # agent, compute parent, the next worker waiting
    assert not held_by(pids, needles)
    with pytest.raises(GputError) as caught:
        holder.copy(holder.sent[0])
    assert caught.value.code == "no-grant"
    assert "torch" not in Path(f"/proc/{running.pid}/maps").read_text()
    view = device.client.get("/v1/gpus/gpu-0").json()
    assert (view["backend"], view["boot_counter"]) == ("EMULATED", world.boot)


def test_records_that_came_twice_leave_nothing_in_the_agent_either(
    process: tuple[subprocess.Popen[bytes], RemoteDevice],
) -> None:
    """Of a repeat only the tag is wanted, and the cipher gives the plaintext with it: here of records whose freed memory is kept."""
    running, device = process
    world = remote_world(device)
    world.set_up(buffer_bytes=256 << 10)
    data = bytearray(records(2048))
    mark = b"".join((0x3F800000 | int.from_bytes(os.urandom(2), "little") << 5).to_bytes(4, "little") for _ in range(2))
    for at in range(0, len(data), RECORD_BYTES):
        data[at : at + len(mark)] = mark
    holder = world.install(2048, 0, bytes(data), chunk_bytes=72 << 10, expires_at=int(time.time()) + 600)
    for record in holder.seal(bytes(data)):
        first = holder.copy(record)
        assert holder.copy(record).received == first.received
    assert first.published
    assert held_by([running.pid], [mark]).total() == 0, "HBM itself is not among what is searched"
    world.open_epoch(holder.grant.epoch)
    world.run(gpu.Scrub(region=holder.grant.region))
    assert not held_by([running.pid, *descendants(running.pid)], [mark])


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_everything_dies_with_the_agent(process: tuple[subprocess.Popen[bytes], RemoteDevice], ending: int) -> None:
    running, device = process
    world = remote_world(device)
    world.set_up()
    holder = world.visit(records(800), expires_at=int(time.time()) + 600)
    world.run(world.train_command(holder, steps=100))
    pids = descendants(running.pid)
    assert len(pids) >= 2
    running.send_signal(ending)
    assert running.wait(20) == (0 if ending == signal.SIGTERM else -signal.SIGKILL)
    deadline = time.monotonic() + 60
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(pids) == []
