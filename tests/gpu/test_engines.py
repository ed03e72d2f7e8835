"""Which memory and compute the settings name; and on a machine without a CUDA device, what is said of one that is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from structlog.testing import CapturingLogger

from gpu_agent import engines
from gpu_agent.api import build_gpu
from gpu_agent.compute import arena
from gpu_agent.compute.device_process import DeviceCompute
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.crew import Crew
from gpu_agent.engines import on_device, open_engines
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.settings import AgentSettings
from shared.errors import ConfigurationError
from tests.gpu.gpu_world import device_folder

CREW = Crew(1)
WITHOUT = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


def settings(folder: Path, **given: Any) -> AgentSettings:
    return AgentSettings(data_dir=folder, device_dir=device_folder(), platform_key=folder / "mux.pub", **given)


def test_the_host_computes_unless_the_settings_name_a_device(tmp_path: Path) -> None:
    hbm, compute = open_engines(settings(tmp_path, hbm_bytes=1 << 20), os.urandom, CREW)
    try:
        assert not isinstance(hbm, DeviceHBM)
        assert not isinstance(compute, DeviceCompute)
    finally:
        compute.close()
        hbm.close()


@pytest.mark.parametrize(("hashes", "who"), [(False, "host"), (True, "card")])
def test_the_log_says_what_the_device_is_and_who_makes_digests(
    monkeypatch: pytest.MonkeyPatch, hashes: bool, who: str
) -> None:
    class Played(DeviceFabric):
        def __init__(self, device: str, size: int | None) -> None:
            super().__init__(device, size)
            self.hashes = hashes

    monkeypatch.setattr(engines, "DeviceFabric", Played)
    logged = CapturingLogger()
    monkeypatch.setattr(engines, "_log", logged)
    hbm, compute = on_device("cpu", 1 << 20, os.urandom)
    compute.close()
    hbm.close()
    ((_, _, line),) = logged.calls
    assert (line["device"], line["card"], line["bytes"], line["digests"]) == ("cpu", "host memory", 1 << 20, who)


@pytest.mark.parametrize("compute", ["cuda", "cuda:", "cuda:x", "cpu", "cuda:0,1", "CUDA:0", "cuda:-1", "", "rocm:0"])
def test_a_name_that_is_no_device_is_refused(tmp_path: Path, compute: str) -> None:
    with pytest.raises(ValidationError):
        settings(tmp_path, compute=compute)


def test_a_setting_that_means_nothing_on_a_device_is_refused_and_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="backing_bytes"):
        open_engines(settings(tmp_path, compute="cuda:0", backing_bytes=1 << 20), os.urandom, CREW)
    with pytest.raises(ConfigurationError, match="compute"):
        settings(tmp_path, compute="cuda:0", evidence="nvml:0").refuse_emulated()


def test_memory_on_a_device_is_what_is_free_unless_the_settings_say_how_much(tmp_path: Path) -> None:
    assert settings(tmp_path, compute="cuda:0").cuda_bytes is None
    assert settings(tmp_path, compute="cuda:0", hbm_bytes=1 << 21).cuda_bytes == 1 << 21
    assert settings(tmp_path).cuda_device is None


@WITHOUT
def test_a_device_that_is_not_there_ends_the_start_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build_gpu(settings(tmp_path, compute="cuda:0"))
    assert (refused.value.code, refused.value.exit_code) == ("no-cuda-device", 2)
    assert "cuda:0" in refused.value.detail
    assert "\n" not in refused.value.advice


def test_a_device_beyond_those_that_are_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    arena.require_device("cuda:1")
    with pytest.raises(ConfigurationError, match="2 CUDA devices") as refused:
        arena.require_device("cuda:2")
    assert refused.value.code == "no-cuda-device"


def test_memory_that_cannot_be_made_ends_the_start() -> None:
    with pytest.raises(ConfigurationError):
        DeviceFabric("cpu", 0)  # a mapping of no bytes


def test_addresses_on_a_device_are_drawn_from_the_entropy() -> None:
    hbm, compute = on_device("cpu", 1 << 22, os.urandom)
    try:
        assert len({hbm.allocate(4096) for _ in range(64)}) == 64
        assert (hbm.size, hbm.backing, hbm.used) == (1 << 22, 1 << 22, 64 * 4096)
    finally:
        compute.close()
        hbm.close()


@pytest.mark.parametrize(
    "ports", [["orchestrator", "holder_north"], ["orchestrator", "holder-"], ["holder-north"], ["orchestrator", ""]]
)
def test_ports_that_nobody_could_ask_for_or_begin_at_are_refused(tmp_path: Path, ports: list[str]) -> None:
    """The port of a misspelt name would be there and be nobody's; without the orchestrator's no session could begin."""
    with pytest.raises(ValidationError) as refused:
        settings(tmp_path, ports=ports)
    assert refused.value.errors()[0]["loc"][0] == "ports"


@pytest.mark.parametrize("ports", [[], ["orchestrator"], ["holder-north", "orchestrator"]])
def test_ports_that_can_be_used_are_taken(tmp_path: Path, ports: list[str]) -> None:
    assert settings(tmp_path, ports=ports).ports == ports
