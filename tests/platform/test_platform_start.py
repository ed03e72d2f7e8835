"""What the platform process and its clients refuse at start or by name, and that it stops when told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import httpx2
import pytest

from gpu_agent.platform.api import create_platform_app
from shared.errors import (
    ConfigurationError,
    EmulationWarning,
    Unavailable,
)
from shared.service.evidence import EmulatedProvider, provider, register
from tests.platform.platform_world import AGENT, DATA, URL, World


async def test_backends_are_by_name_and_never_fall_back() -> None:
    for uri in ("tdx:/dev/tdx_guest", "emulated", "http://127.0.0.1/cvms/x", ""):
        with pytest.raises(ConfigurationError) as caught:
            provider(uri, "t")
        assert caught.value.expected == "configfs-tsm:, emulated:"
    for uri in ("emulated:https://127.0.0.1:1/cvms/x", "emulated:http://127.0.0.1:1/x", "emulated:"):
        with pytest.raises(ConfigurationError):
            provider(uri, "t")
    with pytest.raises(ConfigurationError):
        register("emulated", lambda rest, secrets: EmulatedProvider(rest, secrets.token), derives_keys=True)
    with pytest.warns(EmulationWarning):
        absent = provider("emulated:http://127.0.0.1:9/cvms/orchestrator", "t")
    with pytest.raises(Unavailable) as unreachable:
        await absent.quote(DATA)
    assert unreachable.value.code == "enclave-unreachable"
    await absent.aclose()


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"{}"), (200, b"no json"), (200, b"{}"), (200, b'{"sealed": "!"}'), (200, b"[]")]
)
async def test_a_broken_enclave_is_unavailable(status: int, body: bytes) -> None:
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, content=body))
    with pytest.warns(EmulationWarning):
        cvm = EmulatedProvider(f"{URL}/cvms/orchestrator", "t", transport=transport)
    with pytest.raises(Unavailable):
        await cvm.derived_key("resume")
    if body != b"{}" or status != 200:
        with pytest.raises(Unavailable):
            await cvm.quote(DATA)


def test_an_incomplete_installation_does_not_start(world: World) -> None:
    (world.place.token("holder-north")).unlink()
    with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
        create_platform_app(world.settings(), URL)
    with pytest.raises(ConfigurationError):
        create_platform_app(world.settings(state_dir=world.directory / "nowhere"), URL)


def test_a_bad_orchestrator_key_does_not_start(world: World) -> None:
    for content in (None, b"", b"nonsense"):
        world.public.unlink(missing_ok=True)
        if content is not None:
            world.public.write_bytes(content)
        with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
            create_platform_app(world.settings(), URL)


@pytest.mark.parametrize("place", ["mux", "mux/gpu-0.mux"])
def test_registers_that_cannot_be_made_are_refused_by_name(place: str, world: World) -> None:
    folder, wrong = world.directory / "mux", world.directory / place
    wrong.parent.mkdir(exist_ok=True)
    wrong.symlink_to("/dev/null")  # neither a folder nor a file of its own
    with pytest.raises(ConfigurationError) as refused, pytest.warns(EmulationWarning):
        create_platform_app(world.settings(mux_registers=folder), URL)
    assert refused.value.code == "mux-registers"
    assert str(folder) in refused.value.detail
    assert "mux_registers" in str(refused.value.remedy)


@pytest.mark.processes
def test_the_process_serves_until_told_to_stop(world: World) -> None:
    environment = {
        **os.environ,
        "GPUT_PLATFORM_DATA_DIR": str(world.place.root),
        "GPUT_PLATFORM_AGENT_URL": AGENT,
        "GPUT_PLATFORM_ORCHESTRATOR_KEY": str(world.public),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "gpu_agent.platform"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())["ready"]
            with httpx2.Client(base_url=ready) as client:
                assert client.get("/readyz").status_code == 200
                headers = {"Authorization": f"Bearer {world.place.token('orchestrator').read_text()}"}
                launch = client.post("/cvms/orchestrator/launch", json={"after": 0}, headers=headers).json()["launch"]
                body = {"launch": launch, "report_data": DATA.hex()}
                answer = client.post("/cvms/orchestrator/quote", json=body, headers=headers)
                assert answer.json()["kind"] == "tdx-quote"
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert b"EMULATED" in process.stderr.read()
