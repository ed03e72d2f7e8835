"""The nvml backend over the real nvidia-ml-py and a library in memory: a device's evidence verifies; what is missing is one sentence."""

from __future__ import annotations

import base64
import os
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pynvml
import pytest

from gpu_agent.api import create_app
from gpu_agent.evidence import open_source
from gpu_agent.evidence.nvml import NEEDED, NvmlSource
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.settings import AgentSettings
from orchestrator.gpu_session.link import AgentLink
from shared.attestation.gpu_report import parse_report
from shared.errors import BadRequest, ConfigurationError, EmulationWarning, Unavailable
from shared.service.clock import system_entropy
from shared.service.http import Peers
from shared.wire.spdm import get_measurements
from tests.gpu.gpu_world import device_folder
from tests.gpu.nvml_library import DRIVER, UUID, VBIOS, FakeNvml

NONCE = bytes(range(32))
BASE = "http://agent.test"
GPU = UUID.lower()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        fake = FakeNvml(RootOfTrust.load(device_folder(), system_entropy))
    monkeypatch.setattr(pynvml, "nvmlLib", fake)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return fake


def hardware(uri: str = "nvml:0") -> NvmlSource:
    source = open_source(uri)
    assert isinstance(source, NvmlSource)
    return source


# ------------------------------------------------------------------ library


def test_the_installed_library_has_what_the_backend_names() -> None:
    assert all(callable(getattr(pynvml, name)) for name in NEEDED)
    fields = {
        "c_nvmlConfComputeGpuAttestationReport_t": {"nonce", "attestationReport", "attestationReportSize"},
        "c_nvmlConfComputeGpuCertificate_t": {"attestationCertChain", "attestationCertChainSize"},
        "c_nvmlConfComputeSystemState_t": {"environment", "ccFeature", "devToolsMode"},
        "c_nvmlSystemConfComputeSettings_v1_t": {"version", "multiGpuMode"},
    }
    for structure, names in fields.items():
        assert names <= {entry[0] for entry in getattr(pynvml, structure)._fields_}
    assert (pynvml.NVML_CC_GPU_ATTESTATION_REPORT_SIZE, pynvml.NVML_GPU_ATTESTATION_CERT_CHAIN_SIZE) == (0x2000, 0x1400)


def test_error_numbers_are_the_librarys() -> None:
    numbers = {"FUNCTION_NOT_FOUND": 13, "NOT_SUPPORTED": 3, "INVALID_ARGUMENT": 2, "NOT_FOUND": 6, "GPU_NOT_FOUND": 28,
               "DRIVER_NOT_LOADED": 9, "LIBRARY_NOT_FOUND": 12, "NO_PERMISSION": 4}  # fmt: skip
    assert {name: getattr(pynvml, f"NVML_ERROR_{name}") for name in numbers} == numbers


# ----------------------------------------------------------------- evidence


@pytest.mark.parametrize("uri", ["nvml:0", f"nvml:{UUID}"])
def test_report_and_chain_are_the_devices(library: FakeNvml, uri: str) -> None:
    source = hardware(uri)
    made = source.attest(NONCE)
    assert parse_report(made.report).nonce == NONCE
    assert made.chain == library.root.chain_pem
    assert (source.gpu_id, source.backend.value) == (GPU, "HARDWARE")
    source.close()
    assert library.running == 0


def test_each_report_is_fresh(library: FakeNvml) -> None:
    source = hardware()
    assert source.attest(NONCE).report != source.attest(NONCE).report


def test_what_the_driver_says(library: FakeNvml) -> None:
    library.multi_gpu = 1
    facts = hardware().facts()
    assert (facts.driver_version, facts.vbios_version, facts.environment) == (DRIVER, VBIOS, "production")
    assert (facts.confidential_computing, facts.devtools, facts.multi_gpu) == (True, False, "protected-pcie")


@pytest.mark.parametrize(
    "change",
    [
        {"missing": {"nvmlSystemGetConfComputeSettings"}},
        {"errors": {"nvmlSystemGetConfComputeSettings": 3}},
        {"multi_gpu": 9},
    ],
)
def test_an_older_or_newer_driver_says_nothing_of_several_gpus(library: FakeNvml, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(library, name, value)
    assert hardware().facts().multi_gpu is None


@pytest.mark.parametrize("length", [0, 31, 33])
def test_only_32_bytes_are_a_nonce(library: FakeNvml, length: int) -> None:
    with pytest.raises(BadRequest):
        hardware().attest(bytes(length))


@pytest.mark.parametrize(
    "change",
    [
        {"errors": {"nvmlDeviceGetConfComputeGpuAttestationReport": 3}},
        {"errors": {"nvmlDeviceGetConfComputeGpuCertificate": 999}},
        {"report": lambda _: b""},
        {"report": lambda _: bytes(0x2001)},
        {"report": lambda _: bytes(100)},
        {"chain": b""},
        {"chain": bytes(0x1401)},
        {"chain": b"\xff\xfe"},
    ],
    ids=range(8),
)
def test_a_driver_that_gives_no_evidence(library: FakeNvml, change: dict[str, Any]) -> None:
    source = hardware()
    for name, value in change.items():
        setattr(library, name, value)
    with pytest.raises(Unavailable) as caught:
        source.attest(NONCE)
    assert caught.value.code == "gpu-evidence"


def test_a_report_over_another_nonce_is_not_handed_on(library: FakeNvml) -> None:
    source = hardware()
    library.report = lambda _: library.root.report(get_measurements(bytes(32)))
    with pytest.raises(Unavailable):
        source.attest(NONCE)


# ------------------------------------------------------------------- absent


@pytest.mark.parametrize(
    ("uri", "change", "says"),
    [
        ("nvml:", {}, "names no GPU"),
        ("nvml:first", {}, "names no GPU"),
        ("nvml:1", {}, "no GPU 1"),
        (f"nvml:{UUID[:-1]}0", {}, "no GPU GPU-"),
        ("nvml:0", {"errors": {"nvmlInitWithFlags": 9}}, "Driver Not Loaded"),
        ("nvml:0", {"errors": {"nvmlInitWithFlags": 4}}, "Insufficient Permissions"),
        ("nvml:0", {"missing": {"nvmlSystemGetConfComputeState"}}, "confidential computing"),
        ("nvml:0", {"errors": {"nvmlSystemGetConfComputeState": 3}}, "confidential computing"),
        ("nvml:0", {"errors": {"nvmlSystemGetConfComputeSettings": 1}}, "confidential computing"),
        ("nvml:0", {"state": (2, 0, 0)}, "is off"),
        ("nvml:0", {"state": (2, 1, 1)}, "devtools"),
        ("nvml:0", {"state": (1, 1, 0)}, "simulation"),
        ("nvml:0", {"state": (0, 1, 0)}, "unavailable"),
        ("nvml:0", {"state": (7, 1, 0)}, "unavailable"),
    ],
)
def test_a_missing_gpu_is_one_sentence_at_start(library: FakeNvml, uri: str, change: dict[str, Any], says: str) -> None:
    for name, value in change.items():
        setattr(library, name, value)
    with pytest.raises(ConfigurationError) as caught:
        open_source(uri)
    assert caught.value.code == "evidence-backend"
    assert says in caught.value.detail
    assert caught.value.remedy
    assert library.running == 0


def test_a_missing_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ConfigurationError) as caught:
        open_source("nvml:0")
    assert "pip install --editable '.[nvml]'" in (caught.value.remedy or "")
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=print))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError) as caught:
        open_source("nvml:0")
    assert "nvmlShutdown" in caught.value.detail


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_source("nvml:0")
    assert "Not Found" in caught.value.detail
    assert "driver" in (caught.value.remedy or "")


def test_backends_are_by_name() -> None:
    assert open_source("emulated:") is None
    for uri in ("", "emulated", "emulated:x", "cuda:0", "nvml", "NVML:0"):
        with pytest.raises(ConfigurationError) as caught:
            open_source(uri)
        assert "nvml:INDEX" in (caught.value.expected or "")


# ---------------------------------------------------------------------- api


@pytest.fixture
async def agent(library: FakeNvml, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(AgentSettings(data_dir=tmp_path / "data", evidence="nvml:0"), BASE)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client,
    ):
        yield client
    assert library.running == 0


async def test_the_agent_serves_evidence_and_says_what_it_is(agent: httpx2.AsyncClient, library: FakeNvml) -> None:
    (view,) = (await agent.get("/v1/gpus")).json()["items"]
    assert view == {"gpu": GPU, "backend": "HARDWARE", "port": None, "switches": 0, "boot_counter": None,
                    "memory_bytes": None, "statement_certificate": ""}  # fmt: skip
    answer = await agent.post(f"/v1/gpus/{GPU}/evidence", json={"nonce": NONCE.hex()})
    body = answer.json()
    assert parse_report(base64.b64decode(body["report"])).nonce == NONCE
    assert (body["chain"], body["statement_key"]) == (library.root.chain_pem, "")
    assert body["driver"]["driver_version"] == DRIVER
    assert (await agent.get("/readyz")).status_code == 200
    library.errors = {"nvmlSystemGetConfComputeState": 15}
    assert (await agent.get("/readyz")).status_code == 503
    assert (await agent.post(f"/v1/gpus/{GPU}/evidence", json={"nonce": NONCE.hex()})).json()["code"] == "gpu-evidence"


async def test_what_needs_travelling_firmware_is_not_available(agent: httpx2.AsyncClient) -> None:
    doors = [("POST", f"/v1/gpus/{GPU}/ports/orchestrator/{door}") for door in ("spdm", "commands", "copy")]
    for method, path in (*doors, ("PUT", f"/v1/platform/gpus/{GPU}/mux")):
        answer = await agent.request(method, path, content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-available")
    for nonce in ("", "00" * 31, "zz" * 32):
        assert (await agent.post(f"/v1/gpus/{GPU}/evidence", json={"nonce": nonce})).status_code == 422
    for path in ("/v1/gpus/gpu-9", "/v1/gpus/gpu-9/ports/orchestrator/spdm"):
        method = "POST" if "ports" in path else "GET"
        assert (await agent.request(method, path)).json()["code"] == "unknown-gpu"


async def test_an_orchestrator_that_is_pointed_at_it_is_told(agent: httpx2.AsyncClient) -> None:
    peers = Peers(transports={BASE: agent._transport}, entropy=system_entropy)
    with pytest.raises(Unavailable) as caught:
        await AgentLink(peers.peer(BASE, "GPU agent"), GPU).facts()
    assert caught.value.code == "not-available"
    await peers.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evidence": "nvml:0", "device_dir": Path("/d"), "ports": ["orchestrator"]}, "device_dir, ports"),
        ({"evidence": "nvml:0", "hbm_bytes": 1 << 30}, "hbm_bytes"),
        ({}, "device_dir"),
        ({"device_dir": Path("/d")}, "platform_key"),
        ({"evidence": "nvml:7"}, "no GPU 7"),
    ],
)
def test_settings_of_one_backend_are_not_ignored_by_the_other(
    library: FakeNvml, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_app(AgentSettings(data_dir=tmp_path / "data", **changes), BASE)
    assert says in caught.value.detail
    assert caught.value.remedy
    assert library.running == 0
