"""What a process takes for its cores and its free memory, under the limits of a container: laid out as the kernel shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_agent.crew import Crew
from gpu_agent.settings import AgentSettings
from shared import quota
from shared.quota import free_memory, usable_cores

GIB = 1 << 30
MACHINE = {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\n"}
TWO, ONE = "sys/fs/cgroup/", "proc/self/cgroup"
V2 = {
    ONE: "0::/\n", TWO + "cpu.max": "150000 100000\n", TWO + "memory.max": f"{4 * GIB}\n", TWO + "memory.current": f"{2 * GIB}\n",
    TWO + "memory.stat": f"anon 5\ninactive_file {GIB}\n",
}  # fmt: skip
# Docker's, without a namespace of control groups: the path is the machine's, and what is mounted is the container's own.
V1 = {
    ONE: "4:memory:/docker/d1\n1:cpu,cpuacct:/docker/d1\n0::/docker/d1\n", TWO + "cpu/cpu.cfs_quota_us": "150000\n",
    TWO + "cpu/cpu.cfs_period_us": "100000\n", TWO + "memory/memory.limit_in_bytes": f"{4 * GIB}\n",
    TWO + "memory/memory.usage_in_bytes": f"{2 * GIB}\n", TWO + "memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB}\n",
}  # fmt: skip
# A unit of systemd's: it has no limit, and stands under a slice that has.
NESTED = {name.replace(TWO, f"{TWO}small.slice/"): text for name, text in V2.items()} | {
    ONE: "0::/small.slice/gput.service\n", f"{TWO}small.slice/gput.service/cpu.max": "max 100000\n",
    f"{TWO}small.slice/gput.service/memory.max": "max\n",
}  # fmt: skip
OPEN = {
    ONE: "4:memory:/\n1:cpu:/\n0::/\n", TWO + "cpu.max": "max 100000\n", TWO + "cpu/cpu.cfs_quota_us": "-1\n",
    TWO + "cpu/cpu.cfs_period_us": "100000\n", TWO + "memory/memory.limit_in_bytes": "9223372036854771712\n",
}  # fmt: skip


def laid_out(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in {**MACHINE, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def of_64_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))


@pytest.mark.parametrize("files", [V2, V1, NESTED], ids=["v2", "v1", "nested"])
def test_a_container_has_what_its_limits_leave_and_not_what_the_machine_has(
    tmp_path: Path, files: Mapping[str, str]
) -> None:
    root = laid_out(tmp_path, files)
    assert (usable_cores(root), free_memory(root)) == (2, 3 * GIB)


@pytest.mark.parametrize("files", [OPEN, {}, {ONE: "0::/../other\n"}], ids=["unlimited", "not-mounted", "elsewhere"])
def test_without_limits_the_machine_counts(tmp_path: Path, files: Mapping[str, str]) -> None:
    root = laid_out(tmp_path, files)
    assert (usable_cores(root), free_memory(root)) == (64, 60 * GIB)


def test_pinned_cores_count_where_they_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    assert usable_cores(laid_out(tmp_path, V2)) == 1


def test_who_spreads_work_or_fills_memory_keeps_to_the_containers_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "ROOT", laid_out(tmp_path, V1))
    crew = Crew()
    crew.close()
    assert (crew.threads, usable_cores()) == (2, 2)
    backing = AgentSettings(data_dir=tmp_path).backing()
    assert 3 * GIB * 0.79 < backing < 3 * GIB * 0.81
