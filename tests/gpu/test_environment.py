"""What compute processes are told by their environment: nothing of ours, no card on the host, the same bytes for the same work on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_agent.compute.environment import device_environment, host_environment
from gpu_agent.compute.openmp import SPINS
from gpu_agent.compute.process import ComputeProcess


@pytest.fixture(autouse=True)
def _stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUT_AGENT_SECRET", "x")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")  # keeps what a sweep has to find
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def test_the_environment_of_device_processes_has_no_setting_of_ours() -> None:
    found = device_environment()
    assert not {"GPUT_AGENT_SECRET", "PYTORCH_CUDA_ALLOC_CONF"} & set(found)
    assert found["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert found["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8", "the same bytes for the same work"
    assert found["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1", "which cards there are is the operator's to say"


def test_compute_on_the_host_sees_no_card() -> None:
    found = host_environment()
    assert "GPUT_AGENT_SECRET" not in found
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    counts = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    told = subprocess.run([sys.executable, "-c", counts], env=found, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "0"]


def test_the_compute_parent_of_the_host_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    hbm = os.open(tmp_path / "hbm", os.O_RDWR | os.O_CREAT)
    compute = ComputeProcess(hbm, 1 << 20)
    try:
        compute.spawn()
        told = Path(f"/proc/{compute.pid}/environ").read_bytes().split(b"\0")
    finally:
        compute.close()
        os.close(hbm)
    assert {b"CUDA_VISIBLE_DEVICES=", f"GOMP_SPINCOUNT={SPINS}".encode()} <= set(told)
