"""Law L7: after a scrub no window of a record is left in HBM nor in any process of the agent. Looks where an attacker with root would."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpu_agent.hardware import commands_work
from shared.names import RegionKind
from shared.wire import gpu
from tests.adversary.rows import attack
from tests.gpu.gpu_world import RECORD_BYTES, World, records
from tests.world.world_search import Search

PIECE, OVERLAP = 8 << 20, 7
"""Bytes that are searched at once: small enough to stay cheap, with no window lost between two."""


def process_memory(pid: int) -> Iterator[bytes]:
    """All writable memory of a process; HBM's own mapping is searched through its allocations."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw\S+ ", line)
            if found is None or "gpu-hbm" in line or "[v" in line:
                continue
            start, end = int(found[1], 16), int(found[2], 16)
            for at in range(start, end, PIECE):
                try:
                    memory.seek(at)
                    yield memory.read(min(PIECE + OVERLAP, end - at))
                except OSError:  # pages of files that were cut, device memory
                    continue


def descendants(pid: int) -> list[int]:
    direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [below for child in direct for below in descendants(child)]


def windows(canary: bytes) -> list[bytes]:
    """Disjoint 8-byte windows: whatever holds 15 bytes in a row of the canary holds one of them whole."""
    return [canary[at : at + 8] for at in range(0, len(canary), 8)]


def held_by_compute(world: World, needles: list[bytes]) -> int:
    assert world.compute.pid is not None
    pids = [world.compute.pid, *descendants(world.compute.pid)]
    return held_by(pids, needles).total()


def held_by(pids: Iterable[int], needles: Iterable[bytes]) -> Counter[bytes]:
    """Which of the needles lie in the memory of these processes; the counts are of pieces that hold one."""
    search = Search(needles)
    return Counter(needle for pid in pids for piece in process_memory(pid) for needle in search.find(piece))


def held_in_hbm(world: World, needles: list[bytes]) -> int:
    held = [bytes(world.hbm.view(start, length)) for start, length in world.hbm.allocated()]
    return sum(extent.count(needle) for extent in held for needle in needles)


@attack("H01 H02", scoped="stopped: the scrub; no window in GPU memory or its processes")
def test_nothing_of_a_record_is_left_after_the_scrub(world: World) -> None:
    world.set_up()
    data = bytearray(records(64))
    canary = os.urandom(2)  # the only copy of the random part; windows are built from it when needed, then dropped
    floats = [0x3F800000 | int.from_bytes(canary, "little") << 7 | index for index in range(16)]
    data[5 * RECORD_BYTES : 5 * RECORD_BYTES + 64] = b"".join(f.to_bytes(4, "little") for f in floats)
    needles = windows(bytes(data[5 * RECORD_BYTES : 5 * RECORD_BYTES + 64]))
    holder = world.visit(bytes(data))
    assert held_in_hbm(world, needles) > 0
    assert world.train(holder, steps=8).state == "done"
    assert held_in_hbm(world, needles) > 0  # the search does find it before
    world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    assert held_in_hbm(world, needles) == 0
    assert held_by_compute(world, needles) == 0
    gradients = world.region(RegionKind.GRADIENTS)
    assert not any(world.hbm.view(gradients.address, gradients.length))


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(
            ProcessLookupError
        ):  # one may be gone since it was listed; the others must hear of it all the same
            os.kill(pid, number)


def test_the_search_finds_what_a_training_process_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterpart: a worker's own heap does hold records, so an empty search above means something."""
    world.set_up()
    mark = b"".join((0x3F800000 | int.from_bytes(os.urandom(2), "little") << 5).to_bytes(4, "little") for _ in range(2))
    data = bytearray(records(64 * 12))
    for at in range(0, len(data), RECORD_BYTES):
        data[at : at + 8] = mark
    holder = world.visit(bytes(data))
    world.run(world.train_command(holder, steps=96))
    monkeypatch.setattr(commands_work, "GATHER_S", 0.0)  # to hear of the third step while others follow
    world.run(gpu.Poll(work="w1", after=2, wait_ms=5000))
    assert world.compute.pid is not None
    workers = descendants(world.compute.pid)
    try:
        _signal(workers, signal.SIGSTOP)
        assert held_by_compute(world, [mark]) > 0
    finally:
        _signal(workers, signal.SIGCONT)
    world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    assert held_by_compute(world, [mark]) == 0
    assert held_in_hbm(world, [mark]) == 0
