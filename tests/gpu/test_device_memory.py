"""GPU memory behind a keeper, on the stand-in device `cpu`: same processes, messages and staging as on CUDA, with memory of this host."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_agent.compute import fabric_messages
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import HBM, PAGE, Extent
from shared.canonical import blake3_256
from shared.canonical.zeros import zeros_digest
from shared.errors import OutOfMemory, Unavailable, VerificationFailed
from tests.cores import writes_none
from tests.gpu.device_behaviour import BEHAVIOUR
from tests.gpu.gpu_training import DATA, committed_visit, state_of
from tests.gpu.gpu_world import World, make_world
from tests.gpu.test_gpu_scrub import held_by

SIZE = 24 << 20
SLOT = fabric_messages.SLOT_BYTES


@pytest.fixture(scope="module")
def fabric() -> Iterator[DeviceFabric]:
    made = DeviceFabric("cpu", SIZE)
    yield made
    made.close()


@pytest.fixture
def hbm(fabric: DeviceFabric) -> Iterator[DeviceHBM]:
    memory = DeviceHBM(fabric, random.Random(3).randbytes)
    yield memory
    memory.wipe()


@pytest.fixture(scope="module")
def powered() -> Iterator[World]:
    world = make_world(hbm_bytes=64 << 20, device="cpu")
    yield world
    world.device.close()


def test_bytes_come_back_whatever_their_length_and_have_the_hosts_digest(hbm: DeviceHBM) -> None:
    host = HBM(SIZE, random.Random(4).randbytes)
    for length in (1, PAGE + 1, SLOT, SLOT + 1, 5 * SLOT + 77):
        data, places = random.Random(length).randbytes(length), []
        for memory in (hbm, host):
            at = memory.allocate(length)
            memory.write(at, data)
            assert bytes(memory.view(at, length)) == data
            places.append((memory.digest(at, length), memory.scrub(at, length).digest))
            memory.free(at)
        assert places[0] == places[1]
    assert hbm.view(hbm.allocate(1), 0).nbytes == 0
    host.close()


def test_nothing_reaches_beyond_an_allocation(hbm: DeviceHBM) -> None:
    at = hbm.allocate(PAGE)
    acts: list[Callable[[], object]] = [
        lambda: hbm.view(at, PAGE + 1), lambda: hbm.write(at + 1, bytes(PAGE)), lambda: hbm.landing(at + PAGE - 1, 2),
        lambda: hbm.land(at, PAGE + 1), lambda: hbm.copy([(at, at + 1, PAGE)]), lambda: hbm.digest(at, PAGE + 1),
        lambda: hbm.erase(at, 2 * PAGE), lambda: hbm.peek(SIZE, 1), lambda: hbm.poke(SIZE - 1, b"ab"),
        lambda: hbm.require_backed([Extent(SIZE, 1)]),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(OutOfMemory) as refused:
            act()
        assert refused.value.code == "bad-address"
    long = hbm.allocate(SLOT + PAGE)
    with pytest.raises(OutOfMemory):
        hbm.landing(long, SLOT + 1)
    with pytest.raises(OutOfMemory):
        hbm.allocate(SIZE)


def test_a_view_is_a_snapshot_that_cannot_be_written(hbm: DeviceHBM) -> None:
    at = hbm.allocate(PAGE)
    hbm.write(at, b"before")
    view = hbm.view(at, 6)
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 0
    hbm.write(at, b"after!")
    assert (bytes(view), bytes(hbm.view(at, 6))) == (b"before", b"after!")


def test_records_land_in_order_through_more_slots_than_there_are(hbm: DeviceHBM) -> None:
    count = 3 * fabric_messages.SLOTS
    at = hbm.allocate(count * 1000)
    for number in range(count):
        hbm.landing(at + number * 1000, 1000)[:] = bytes([number + 1]) * 1000
        hbm.land(at + number * 1000, 1000)
    assert bytes(hbm.view(at, count * 1000)) == b"".join(bytes([number + 1]) * 1000 for number in range(count))


def test_what_was_not_landed_never_gets_into_memory_and_is_washed_off_with_the_next_scrub(
    hbm: DeviceHBM, fabric: DeviceFabric
) -> None:
    at, mark = hbm.allocate(PAGE), os.urandom(16)
    hbm.write(at, mark)
    hbm.landing(at, 16)[:] = mark[::-1]
    assert bytes(hbm.view(at, 16)) == mark
    assert held_by([fabric.pid], [mark]).total() > 0  # staging, and the memory itself: the search does find it before
    hbm.scrub(at, PAGE)
    for needle in (mark, mark[::-1]):
        assert held_by([fabric.pid], [needle]).total() == 0
        assert needle not in bytes(fabric._staging)


@pytest.mark.parametrize(("start", "length"), [(0, PAGE), (1, 1), (3, 4), (5, PAGE), (8, 16), (7, 2 * PAGE + 3)])
@pytest.mark.parametrize("end", ["first", "last"])
def test_one_byte_left_fails_a_scrub_wherever_it_lies(
    hbm: DeviceHBM, fabric: DeviceFabric, monkeypatch: pytest.MonkeyPatch, start: int, length: int, end: str
) -> None:
    at = hbm.allocate(4 * PAGE) + start
    hbm.write(at - start, b"\xff" * 4 * PAGE)
    assert hbm.scrub(at, length).digest == zeros_digest(length)
    around = bytes(hbm.view(at - start, 4 * PAGE))
    assert around == b"\xff" * start + bytes(length) + b"\xff" * (4 * PAGE - start - length)

    def careless(address: int, count: int) -> None:
        honest(address + (end == "first"), count - 1)

    hbm.write(at, b"\xff" * length)
    honest = fabric.zero
    monkeypatch.setattr(fabric, "zero", careless)
    with pytest.raises(VerificationFailed):
        hbm.scrub(at, length)


def test_a_digest_of_many_parts_is_the_hosts(hbm: DeviceHBM) -> None:
    draw, host = random.Random(6), HBM(SIZE, random.Random(4).randbytes)
    for lengths in ([], [0], [1], [SLOT - 3, 7, SLOT], [3 * SLOT, 0, 5], [draw.randrange(3000) for _ in range(100)]):
        parts: dict[bool, list[tuple[bytes, Extent]]] = {True: [], False: []}
        for length in lengths:
            head, data = draw.randbytes(draw.randrange(200)), draw.randbytes(length)
            for memory in (hbm, host):
                at = memory.allocate(max(length, 1))
                memory.write(at, data)
                parts[memory is host].append((head, Extent(at, length)))
        assert hbm.digest_of(parts[False]) == host.digest_of(parts[True])
        for memory in (hbm, host):
            memory.wipe()
    with pytest.raises(OutOfMemory):
        hbm.digest_of([(b"", Extent(0, PAGE))])
    host.close()


def test_a_digest_that_was_cut_off_has_no_part_in_the_next(hbm: DeviceHBM, fabric: DeviceFabric) -> None:
    at = hbm.allocate(PAGE)
    hbm.write(at, b"\1" * PAGE)
    with pytest.raises(Unavailable):
        fabric.digest([(b"head", Extent(at, PAGE)), (b"", Extent(SIZE, 1))])
    assert hbm.digest(at, PAGE) == blake3_256(b"\1" * PAGE)


def test_a_tag_stands_for_a_key_a_number_and_every_byte(hbm: DeviceHBM) -> None:
    at = hbm.allocate(3 * PAGE)
    hbm.write(at, os.urandom(3 * PAGE))
    extents = [(1, Extent(at, 2 * PAGE)), (2, Extent(at, 2 * PAGE)), (2, Extent(at + PAGE, 0))]
    tags = hbm.tags(bytes(32), extents)
    assert len({*tags, *hbm.tags(b"\1" * 32, extents)}) == 6
    assert tags == hbm.tags(bytes(32), extents)
    hbm.write(at + 2 * PAGE, b"behind it")
    assert tags == hbm.tags(bytes(32), extents)
    last = bytes(hbm.view(at + 2 * PAGE - 1, 1))
    hbm.write(at + 2 * PAGE - 1, bytes([last[0] ^ 1]))
    changed = hbm.tags(bytes(32), extents)
    assert [one == other for one, other in zip(tags, changed, strict=True)] == [False, False, True]


def test_strays_are_found_counted_and_cleared(hbm: DeviceHBM) -> None:
    own = hbm.allocate(PAGE)
    hbm.write(own, b"own")
    spare = [at for at in range(0, SIZE, PAGE) if hbm._is_free(at, PAGE)]
    for at in (spare[0], spare[-1]):
        hbm.poke(at + 17, b"hidden")
    assert hbm.peek(spare[0] + 17, 6) == b"hidden"
    assert hbm.clear_strays() == 2 * PAGE
    assert hbm.clear_strays() == 0
    assert (hbm.peek(spare[-1] + 17, 6), hbm.peek(own, 3)) == (bytes(6), b"own")


@pytest.mark.parametrize("used", [101, PAGE - 1, PAGE, PAGE + 7, 3 * PAGE])
def test_what_an_allocation_has_behind_what_is_used_is_scrubbed(hbm: DeviceHBM, used: int) -> None:
    at, whole = hbm.allocate(3 * PAGE), 3 * PAGE
    hbm.write(at, b"\xff" * whole)
    hbm.scrub_slack(Extent(at, used))
    assert bytes(hbm.view(at, whole)) == b"\xff" * used + bytes(whole - used)


def test_a_keeper_that_dies_takes_memory_with_it_and_every_request_says_so() -> None:
    fabric = DeviceFabric("cpu", 1 << 20)
    memory = DeviceHBM(fabric, os.urandom)
    at = memory.allocate(PAGE)
    os.kill(fabric.pid, signal.SIGKILL)
    acts: list[Callable[[], object]] = [
        lambda: memory.view(at, 1), lambda: memory.write(at, b"x"), lambda: memory.scrub(at, PAGE), lambda: memory.digest(at, 1),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(Unavailable) as lost:
            act()
        assert lost.value.code == "gpu-memory-lost"
    memory.close()


def test_a_request_that_fails_fails_alone(hbm: DeviceHBM, fabric: DeviceFabric) -> None:
    at = hbm.allocate(PAGE)
    with pytest.raises(Unavailable) as failed:
        fabric.zero(SIZE, 1)
    assert failed.value.code == "gpu-memory-failed"
    with pytest.raises(Unavailable):
        fabric.read_into(SIZE - SLOT, memoryview(bytearray(6 * SLOT)))
    hbm.write(at, b"still in step")
    assert bytes(hbm.view(at, 13)) == b"still in step"


# ------------------------------------------------------------ the whole device over it


@pytest.mark.parametrize("behaviour", BEHAVIOUR, ids=lambda test: test.__name__)
def test_a_device_behaves_as_the_host_does(powered: World, behaviour: Callable[[World], None]) -> None:
    behaviour(World(powered.device, powered.hbm, powered.compute, powered.now, powered.faults))
    assert not powered.faults


def test_the_keeper_leaves_nothing_of_its_memory_when_it_crashes(powered: World) -> None:
    assert writes_none(powered.hbm._fabric.pid)  # type: ignore[attr-defined]  # a DeviceHBM


def test_the_same_session_gives_the_same_model_here_and_there(powered: World, world: World) -> None:
    found = []
    for one in (powered, world):
        one.set_up()
        committed_visit(one, DATA, "w1", 0)
        told = committed_visit(one, DATA, "w2", 4)
        found.append(state_of(one))
        assert told.optimiser is None, "what nobody asked for is read back and not hashed"
        assert told.version == one.measure().version
    assert found[0] == found[1]


@pytest.mark.slow
def test_memory_that_a_worker_cannot_open_fails_the_launch_in_words() -> None:
    world = make_world(hbm_bytes=32 << 20, device="cpu")
    try:
        ComputeProcess.close(world.compute)  # only its processes; they come back, and look elsewhere
        world.compute._place = "cpu/4096/4096/999"  # a descriptor of nothing
        world.set_up()
        state = world.train(world.visit(DATA))
        assert (state.state, state.code) == ("failed", "compute-no-memory")
    finally:
        world.device.close()
    assert not Path(f"/proc/{world.hbm._fabric.pid}").exists()  # type: ignore[attr-defined]  # a DeviceHBM
