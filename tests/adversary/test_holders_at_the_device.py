"""Malicious holders against a bare device in every travel mode: other memory, other visits, wrong counts, wrong records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shared.crypto.stock_channel import StockChannel
from shared.names import RegionKind, TravelMode
from shared.wire import gpu
from shared.wire.codec import encode, encode_all
from shared.wire.copy import DATA as CHUNK
from shared.wire.stock import CopyMemory, LaunchProgram, ReadMemory, Span, StockFrame, WriteMemory
from tests.adversary.rows import attack
from tests.adversary.visitor import ALL_MODES, DATA, Visitors, code_of
from tests.gpu.gpu_world import OPTIONS, RECORD_BYTES, Holder, World, program, records
from tests.gpu.test_gpu_paper import Attacker, free_address
from tests.gpu.test_gpu_scrub import held_by_compute, held_in_hbm, windows

OTHER_MODES = [TravelMode.SCOPED, TravelMode.DIRECT]
EACH_MODE = pytest.mark.parametrize("mode", ALL_MODES)


@pytest.fixture
def visitors(device: World, mode: TravelMode) -> Visitors:
    made = Visitors(device, mode)
    made.set_up()
    return made


def stock_commands(world: World) -> list[Any]:
    """Everything that a key to the whole GPU would do: read, overwrite, copy the model, launch what it planted."""
    places = {r.kind: r for r in world.regions}
    model, code = places[RegionKind.MODEL], places[RegionKind.CODE]
    span = Span(address=model.address, length=64)
    return [
        ReadMemory(address=model.address, length=64),
        WriteMemory(address=model.address, data=b"overwritten"),
        WriteMemory(address=code.address, data=b"patched"),
        WriteMemory(address=free_address(world), data=program()[0][:1000]),
        CopyMemory(target=places[RegionKind.DATASET].address, source=model.address, length=64),
        LaunchProgram(
            kind="train", code=Span(address=code.address, length=code.length), model=span, gradients=span, optimiser=span,
            committed=span, data=span, records=1, steps=1, total_steps=1, options=OPTIONS,
        ),
    ]  # fmt: skip


@attack(
    "H03 H04 H05 H06 H16 H22 C02",
    scoped="stopped: a holder's port has no command path",
    direct="stopped: a holder's port has no command path",
)
@pytest.mark.parametrize("mode", OTHER_MODES)
def test_a_visit_key_commands_nothing(visitors: Visitors, mode: TravelMode) -> None:
    """Stock commands, sealed as stock firmware would have them under the visit key: none is taken, and memory is as before."""
    world = visitors.world
    holder, before = visitors.install(), world.measure()
    channel = StockChannel(holder.key, holder.grant, "holder")
    for command in stock_commands(world):
        n, ct = channel.seal(encode_all([command]))
        frame = encode(StockFrame(epoch=holder.grant.epoch, n=n, ct=ct))
        assert code_of(lambda frame=frame: world.device.stock(holder.grant.port, frame)) == "wrong-port"
    after = world.measure()
    assert (after.model, after.code, after.control) == (before.model, before.code, before.control)
    assert not any(visitors.buffer(holder))


@attack("H07", paper="open: the key writes anywhere; what it changed is found out and undone after the fence")
def test_in_paper_a_holder_writes_past_its_buffer(device: World) -> None:
    visitors = Visitors(device, TravelMode.PAPER)
    visitors.set_up()
    holder = visitors.install()
    attacker, place = Attacker(holder), device.region(RegionKind.DATASET)
    beyond = place.address + place.length
    attacker.write(beyond, b"past the end")
    assert bytes(device.hbm.peek(beyond, 12)) == b"past the end"
    device.open_epoch(holder.grant.epoch)
    assert device.run(gpu.Drain(), gpu.Sweep())[1].strays >= 1
    assert not any(device.hbm.peek(beyond, 12))


@attack(
    "H01 H02",
    direct="stopped: the scrub; no window in GPU memory or its processes",
    paper="stopped: the scrub; the next visitor reads all of memory and finds nothing",
)
@pytest.mark.parametrize("mode", [TravelMode.DIRECT, TravelMode.PAPER])
def test_the_next_visitor_finds_nothing_of_the_last(visitors: Visitors, mode: TravelMode) -> None:
    world = visitors.world
    holder = visitors.visit()
    needles = windows(DATA[5 * RECORD_BYTES : 5 * RECORD_BYTES + 64])
    assert held_in_hbm(world, needles) > 0
    world.train(holder)
    visitors.close(holder)
    assert held_in_hbm(world, needles) == 0
    assert held_by_compute(world, needles) == 0
    if mode is TravelMode.PAPER:
        attacker = Attacker(visitors.install(records(32, seed=9)))
        for start, length in world.hbm.allocated():
            seen = b"".join(
                attacker.read(at, min(1 << 16, start + length - at)) for at in range(start, start + length, 1 << 16)
            )
            assert not any(needle in seen for needle in needles)


def moved(record: bytes, holder: Holder) -> bytes:
    """A record under another visit's epoch and region."""
    grant = holder.grant
    return record[:8] + grant.epoch.to_bytes(4, "little") + grant.region.to_bytes(4, "little") + record[16:]


@attack(
    "H09 H11 C03",
    scoped="stopped: a key and counters of its own for each epoch",
    direct="stopped: a key and counters of its own for each epoch",
    paper="stopped: a key and counters of its own for each epoch",
)
@EACH_MODE
def test_what_was_sealed_for_one_visit_opens_in_no_other(visitors: Visitors, mode: TravelMode) -> None:
    """The transcript of visit v in visit v+1, as it was and under the new header; and v's sealing channel, resumed where it stood."""
    world = visitors.world
    first = visitors.visit()
    world.train(first)
    visitors.close(first)
    resumed = [first.record(CHUNK, 0, 3, DATA[:1000], first.channel)]
    for old in (first.sent, resumed):
        second = visitors.install(holder="south", port="holder-south")
        assert visitors.bring(second, old) in ("no-grant", "staging does not hold the whole visit")
        assert not any(visitors.buffer(second))
        visitors.fence(second)
        world.run(gpu.Scrub(region=second.grant.region))
        third = visitors.install(holder="south", port="holder-south")
        assert visitors.bring(third, [moved(record, third) for record in old]) is not None
        assert not any(visitors.buffer(third))
        visitors.fence(third)
        world.run(gpu.Scrub(region=third.grant.region))


LIES: dict[str, dict[str, Any]] = {
    "fewer records": {"records": 31}, "more records": {"records": 33}, "huge count": {"records": 2**31 - 1},
    "shorter": {"length": len(DATA) - RECORD_BYTES}, "fewer chunks": {"chunks": 2}, "other commitment": {"commitment": "ab" * 32},
}  # fmt: skip


@attack(
    "H13",
    direct="stopped: count, length and commitment must be those of memory",
    paper="stopped: count, length and commitment must be those of memory",
)
@pytest.mark.parametrize("mode", [TravelMode.DIRECT, TravelMode.PAPER])
@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_count_publishes_nothing(visitors: Visitors, mode: TravelMode, lie: str) -> None:
    holder = visitors.install()
    assert visitors.bring(holder, holder.seal(DATA, **LIES[lie])) is not None
    content = visitors.fence(holder)
    assert not content.published
    assert not any(visitors.buffer(holder))
    assert visitors.world.refused(visitors.world.train_command(holder)) in ("out-of-order", "wrong-records")


@attack(
    "H14",
    direct="stopped: records are proven within the approved root",
    scoped="stopped: records are proven within the approved root",
)
@pytest.mark.parametrize("mode", OTHER_MODES)
def test_other_records_than_the_approved_publish_nothing(visitors: Visitors, mode: TravelMode) -> None:
    holder, other = visitors.install(), records(32, seed=4)
    holder.dataset = other  # its proof is an honest one, of what it did not approve
    assert visitors.bring(holder, holder.seal(other)) is not None
    assert not visitors.fence(holder).published
    assert not any(visitors.buffer(holder))


@attack("H12", direct="stopped: nothing is left in staging after the lease")
def test_a_lease_ends_in_direct_as_well(device: World) -> None:
    visitors = Visitors(device, TravelMode.DIRECT)
    visitors.set_up()
    holder = visitors.install()
    sealed = holder.seal(DATA)
    device.device.stage(holder.grant.port, sealed[0])
    device.now[0] += 601
    assert code_of(lambda: device.device.stage(holder.grant.port, sealed[1])) == "grant-expired"


@attack(
    "H20",
    scoped="stopped: one closing record a grant, one grant a visit",
    direct="stopped: one fetch a grant, one grant a visit",
    paper="stopped: one closing record a grant, one grant a visit",
)
@EACH_MODE
def test_nobody_visits_twice(visitors: Visitors, mode: TravelMode) -> None:
    """The same records again under the same key, and the same visit again under another epoch."""
    world = visitors.world
    holder = visitors.install()
    assert visitors.bring(holder, holder.seal(DATA)) is None
    again = holder.record(CHUNK, 4, 3, DATA[:1000], holder.channel)
    late: Callable[[], object] = (
        (lambda: world.device.stage(holder.grant.port, again)) if mode is TravelMode.DIRECT else lambda: holder.copy(again)
    )  # fmt: skip
    assert code_of(late) in ("copy-refused", "staging-full")
    assert visitors.buffer(holder)[: len(DATA)] == DATA
    visitors.fence(holder)
    assert world.train(holder).records == 24
    visitors.close(holder)
    assert code_of_install(visitors, holder.grant.visit) == "visit-reused"
    assert world.run(gpu.Status())[0].step == 3


def code_of_install(visitors: Visitors, visit: str) -> str:
    from tests.gpu.gpu_world import Refused

    try:
        visitors.install(visit=visit)
    except Refused as error:
        return error.code
    return "done"


@attack(
    "H21",
    scoped="stopped: range and finite checks in the GPU before a step",
    direct="stopped: range and finite checks in the GPU before a step",
    paper="stopped: range and finite checks in the GPU before a step",
)
@EACH_MODE
@pytest.mark.parametrize("what", ["label", "nan", "inf"])
def test_records_out_of_range_train_nothing(visitors: Visitors, mode: TravelMode, what: str) -> None:
    world, bad = visitors.world, bytearray(DATA)
    at = 3 * RECORD_BYTES
    if what == "label":
        bad[at + RECORD_BYTES - 8 : at + RECORD_BYTES] = np.int64(-1).tobytes()
    else:
        bad[at : at + 4] = np.float32(what).tobytes()
    before = world.measure()
    state = world.train(visitors.visit(bytes(bad)))
    assert (state.state, state.code, state.steps_done) == ("failed", "record-out-of-range", 0)
    assert world.measure().model == before.model
    assert world.refused(gpu.Commit(work="w1")) == "nothing-to-commit"
