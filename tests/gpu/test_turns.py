"""Who gives way on a core: a worker while it waits, never while it trains; nothing else about a process changes."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import cast

import pytest

from gpu_agent.compute import forked, messages, places
from gpu_agent.compute.__main__ import Parent
from gpu_agent.compute.planned import by_default
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import LoadedProgram
from shared import turns
from tests.gpu.gpu_world import manifest

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_KNOWN = platform.machine() in _SCHED_GETATTR
_FIRST_KERNEL = (6, 12)


def slice_ns(thread: int = 0) -> int:
    """The slice that the kernel states for a thread."""
    attributes = ctypes.create_string_buffer(turns._ATTR.size)
    number = _SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, thread, attributes, turns._ATTR.size, 0) == 0
    return int(turns._ATTR.unpack(attributes.raw)[5])


def _kernel() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


needs_slices = pytest.mark.skipif(
    not _KNOWN or _kernel() < _FIRST_KERNEL, reason="the kernel knows no slices of a thread's own (Linux 6.12 and later do)"
)  # fmt: skip


@pytest.fixture
def usual() -> int:
    """What the kernel gives who asked for nothing."""
    return slice_ns()


@needs_slices
def test_a_process_gives_way_with_all_its_threads_and_takes_turns_again(usual: int) -> None:
    stop, began = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        stop.wait()

    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
    threads = [threading.Thread(target=wait) for _ in range(2)]
    threads[0].start()
    try:
        assert turns.give_way()
        threads[1].start()  # it inherits
        began.wait()
        numbers = [0, *(thread.native_id or 0 for thread in threads)]
        assert [slice_ns(number) for number in numbers] == [turns.LONG_NS] * 3
        assert turns.take_turns()
        assert [slice_ns(number) for number in numbers] == [usual] * 3
        assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)) == before
    finally:
        turns.take_turns()
        stop.set()
        for thread in threads:
            thread.join()


def _child(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return found.stdout.strip()


@pytest.mark.skipif(not _KNOWN, reason="no machine whose system calls are known")
def test_a_lower_priority_stays() -> None:
    code = "import os; os.nice(3); from shared import turns; print(turns.give_way(), turns.take_turns(), os.nice(0))"
    assert _child(code) == "True True 3"


def test_a_policy_that_somebody_chose_stays() -> None:
    code = (
        "import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); from shared import turns;"
        "print(turns.give_way(), turns.take_turns(), os.sched_getscheduler(0) == os.SCHED_BATCH)"
    )
    assert _child(code) == "False False True"


def test_on_a_machine_whose_calls_are_not_known_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not turns.give_way()


def test_a_process_of_32_bits_has_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WORD_BYTES", 4)
    assert not turns.give_way()


def test_a_hint_that_is_not_to_be_given_fails_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A thread that ended since it was seen: a number beyond 2^22, which Linux gives none; a system that has no such place."""
    (tmp_path / str(1 << 30)).mkdir()
    for tasks in (tmp_path, tmp_path / "none"):
        monkeypatch.setattr(turns, "_TASKS", tasks)
        assert not turns.give_way()


@needs_slices
@pytest.mark.parametrize("module", ["orchestrator", "gpu_agent.platform"])
def test_the_orchestrator_and_the_platform_go_first(module: str) -> None:
    code = (
        "import runpy, sys; from shared.service import server; from tests.gpu.test_turns import slice_ns;"
        "server.service_main = lambda *_, **__: print(slice_ns()) or 0; sys.argv = ['service'];"
        f"runpy.run_module({module!r}, run_name='__main__')"
    )
    assert _child(code) == str(turns.SHORT_NS)


@needs_slices
@pytest.mark.parametrize("ahead", [True, False])
def test_a_worker_gives_way_while_it_waits_and_takes_turns_while_it_works(
    usual: int, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Forked for a launch that is there it does neither, and warms nothing up."""
    told, telling = os.pipe()
    _, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = Parent(SharedMap(-1, 4096), theirs, places.HOST)
    parent._programs["ab"] = cast("LoadedProgram", object())
    parent._planned["ab"] = by_default(manifest())

    def tell(*_: object) -> None:
        os.write(telling, struct.pack("=Q", slice_ns()))

    monkeypatch.setattr(forked, "_opened", tell)
    monkeypatch.setattr(forked.worker, "warm_up", tell)
    monkeypatch.setattr(forked, "_work", tell)
    parent._prepare_spare("ab", at_once=not ahead)
    (spare,) = parent._spares
    os.write(spare.control, messages.pack({"op": "run"}))
    assert os.waitpid(spare.pid, 0)[1] == 0
    slices = [one for (one,) in struct.iter_unpack("=Q", os.read(told, 64))]
    assert slices == ([turns.LONG_NS, turns.LONG_NS, usual] if ahead else [usual, usual])
    assert slice_ns() == usual, "its parent takes turns"
    for end in (told, telling, spare.control, spare.pidfd):
        os.close(end)
