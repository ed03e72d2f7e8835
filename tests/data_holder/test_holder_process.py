"""The holder as a process and over real sockets: ready line, clean stop, copy records streamed from the sealed buffer, PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from data_holder.links import GpuLink, LinkCounters
from shared.crypto.signing import fingerprint, load_public
from shared.errors import ConfigurationError, EmulationWarning
from shared.service.http import Peers
from tests.data_holder.conftest import Start
from tests.data_holder.holder_world import NAME, SESSION, visit_key


async def test_a_record_streams_from_the_callers_buffer() -> None:
    got: list[bytes] = []

    async def take(request: Request) -> Response:
        assert request.headers["content-length"] == str(len(await request.body()))
        got.append(await request.body())
        return Response(b"ack")

    app = Starlette(routes=[Route("/v1/gpus/gpu-0/ports/holder-north/copy", take, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn offers no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    counters = LinkCounters()
    async with Peers() as peers:
        link = GpuLink(peers.peer(f"http://127.0.0.1:{port}", "the GPU agent"), counters)
        buffer = bytearray(os.urandom(3 << 20))
        for end in (100, 2 << 20, 3 << 20):
            answer = await link.leave("copy", "gpu-0", "holder-north", memoryview(buffer)[:end], timeout_s=5)
            assert answer == b"ack"
            assert got.pop() == buffer[:end]
    assert counters.sent == 100 + (2 << 20) + (3 << 20)
    server.should_exit = True
    await task


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / "token").write_text("t" * 32)
    base = {
        "GPUT_HOLDER_NAME": NAME, "GPUT_HOLDER_DATA_DIR": str(tmp_path / "state"),
        "GPUT_HOLDER_ORCHESTRATOR_URL": "http://127.0.0.1:9", "GPUT_HOLDER_EVIDENCE": "emulated:http://127.0.0.1:9/cvms/holder-north",
        "GPUT_HOLDER_EVIDENCE_TOKEN_FILE": str(tmp_path / "token"), "GPUT_HOLDER_TRUST_DIR": str(tmp_path / "trust"),
    }  # fmt: skip
    return {"PATH": os.environ["PATH"], **base, **more}


def start_process(env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "data_holder"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.processes
def test_process_says_who_it_is_and_stops_cleanly(tmp_path: Path) -> None:
    from gpu_agent.platform.device_manufacture import manufacture_device
    from gpu_agent.platform.manufacture import manufacture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        folder, cvms = tmp_path / "installation", ["orchestrator", "holder-north"]
        manufacture(folder, ["gpu-0"], cvms, make_device=manufacture_device, at=time.time())
    (tmp_path / "trust").symlink_to(tmp_path / "installation" / "trust")
    process = start_process(environment(tmp_path))
    try:
        assert process.stdout is not None
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        assert ready["name"] == NAME
        assert ready["fingerprint"] == fingerprint(load_public(ready["public_key"].encode()))
        assert (tmp_path / "state" / f"{NAME}.pub").read_text() == ready["public_key"]
        assert (tmp_path / "state" / "identity.pem").stat().st_mode & 0o077 == 0
        assert httpx2.get(f"{ready['ready']}/livez").status_code == 200
        unready = httpx2.get(f"{ready['ready']}/readyz")  # the quoting enclave is away
        assert unready.status_code == 503
        assert "quoting enclave" in unready.text
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert "torch" not in (process.stderr.read() if process.stderr else "")


@pytest.mark.processes
def test_a_missing_trust_folder_is_one_clear_error(tmp_path: Path) -> None:
    process = start_process(environment(tmp_path))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ConfigurationError.exit_code
    assert "cpu-roots.pem is missing" in errors
    assert "remedy:" in errors


def test_holder_imports_no_torch() -> None:
    code = "import sys, data_holder.__main__; print([m for m in ('torch', 'gpu_agent', 'orchestrator') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_visit_over_postgresql(start: Start, postgres_url: str) -> None:
    async with start(database_url=postgres_url) as running:
        await running.approved_with_channel()
        made, document = running.orchestrator.make_offer(visit_key())
        running.gpu.install(document, visit_key())
        running.orchestrator.send_offer(made)
        await running.until(lambda: running.attempt_phase(1) == "REPORTED")
        running.orchestrator.close_visit(running.orchestrator.make_receipt(document, running.orchestrator.reports[0]))
        await running.until(lambda: running.holder.ledger.state(SESSION).receipts == 1)
        assert (await running.get("/v1/receipts"))["items"][0]["verified"]
    async with start(database_url=postgres_url) as again:
        assert again.holder.ledger.state(SESSION).highest_epoch == 1
