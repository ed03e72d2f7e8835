"""What a training takes beside GPU memory: counted by the kernel in the process that trains, told in the agent's metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from prometheus_client import CollectorRegistry

from gpu_agent.compute import messages
from gpu_agent.compute.arena import Whole
from gpu_agent.compute.own_memory import OwnMemory
from gpu_agent.compute.places import DevicePlace
from gpu_agent.hardware.compute import Finished
from gpu_agent.metrics import GpuCollector
from tests.gpu.gpu_training import DATA, committed_visit
from tests.gpu.gpu_world import World

MIB = 1 << 20
WORK = """
import mmap
from gpu_agent.compute.own_memory import OwnMemory
POPULATE = 23
before = bytearray(b"x") * (48 << 20)  # what was there is not counted
own = OwnMemory()
early = bytearray(b"x") * (96 << 20)  # nor what has come and gone before somebody watches
del early
own.watch()
shared = mmap.mmap(-1, 80 << 20)  # as GPU memory is
shared.madvise(POPULATE, 0, 80 << 20)
short = bytearray(b"x") * (64 << 20)
del short  # and yet the most there was
late = bytearray(b"x") * (8 << 20)
print(own.most)
"""


def test_the_most_at_once_is_what_is_counted() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, check=True, text=True)
    most = int(done.stdout)
    assert most > 63 * MIB, "a little short at most"
    assert most < 72 * MIB, "neither shared memory, nor what was there before, nor both at once"


def account(folder: Path, **kilobytes: int) -> Path:
    lines = "".join(f"{name}:\t{value} kB\n" for name, value in kilobytes.items())
    (folder / "status").write_text(f"Name:\tworker\n{lines}Threads:\t1\n")
    return folder


def test_what_grows_in_other_kinds_is_taken_off(tmp_path: Path) -> None:
    own = OwnMemory(account(tmp_path, VmHWM=900, RssAnon=100, RssFile=10, RssShmem=20))
    own.watch()
    assert (tmp_path / "clear_refs").read_text() == "5"
    account(tmp_path, VmHWM=1000, RssAnon=150, RssFile=40, RssShmem=60)
    assert own.most == (1000 - 40 - 60 - 100) * 1024
    account(tmp_path, VmHWM=100, RssAnon=50, RssFile=40, RssShmem=60)
    assert own.most == 0


@pytest.mark.parametrize("lacks", ["VmHWM", "RssAnon", "RssFile", "RssShmem"])
def test_a_kernel_that_does_not_tell_gives_no_figure(lacks: str, tmp_path: Path) -> None:
    told = {"VmHWM": 900, "RssAnon": 100, "RssFile": 10, "RssShmem": 20}
    own = OwnMemory(account(tmp_path, **{name: value for name, value in told.items() if name != lacks}))
    assert own.most is None, "nobody watched"
    own.watch()
    assert own.most is None


def test_a_peak_that_cannot_be_begun_anew_is_no_figure(tmp_path: Path) -> None:
    own = OwnMemory(account(tmp_path, VmHWM=900, RssAnon=100, RssFile=10, RssShmem=20))
    (tmp_path / "clear_refs").mkdir()
    own.watch()
    assert own.most is None
    gone = OwnMemory(tmp_path / "nothing")
    gone.watch()
    assert gone.most is None


def test_it_is_not_guessed_on_another_device() -> None:
    place = DevicePlace(Whole(torch.zeros(4096, dtype=torch.uint8)))
    place.watch()
    assert place.most_beside is None


def test_the_message_carries_it() -> None:
    for beside in (None, 5 * MIB):
        told = Finished(1.0, 8, 1, 0.5, True, 0.25, beside)
        assert messages.news_of(messages.unpack(messages.pack(messages.finished_message(1, told)))) == told


def gauge(compute: Any) -> float | None:
    view = SimpleNamespace(boot_counter=1, switches=0, memory_bytes=80 << 30)
    registry = CollectorRegistry()
    registry.register(GpuCollector({"gpu-0": cast("Any", SimpleNamespace(view=lambda: view, compute=compute))}))
    return registry.get_sample_value("gput_gpu_training_bytes", {"gpu": "gpu-0"})


def test_the_agent_tells_the_largest_of_its_trainings(world: World) -> None:
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    most = world.compute.most_beside
    assert most is not None
    assert 0 < most < 1024 * MIB
    assert gauge(world.compute) == 1 << (most - 1).bit_length()
    world.compute.most_beside = 1 << 40
    committed_visit(world, DATA, "w2", 4)
    assert gauge(world.compute) == 1 << 40, "a smaller one changes nothing"
    world.compute.most_beside = None
    assert gauge(world.compute) is None, "before the first"


@pytest.mark.parametrize(
    ("taken", "told"), [(0, 1), (1, 1), (2**20, 2**20), (2**20 + 1, 2**21), (2**21 - 1, 2**21), (5 * MIB, 8 * MIB)]
)
def test_what_a_training_took_is_told_as_a_power_of_two(taken: int, told: int) -> None:
    """Anybody may read it, and what exactly a training takes may follow from holders' records."""
    assert gauge(SimpleNamespace(most_beside=taken)) == told
