"""Travel mode `paper` on a real device: the visit key commands the whole GPU until the fence, and the sweep after it finds everything.

What succeeds here is what the publication leaves open (attacks H01-H08, H14, H16, H22); what does not is what its defences stop.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.claims.visit import Grant
from shared.crypto.stock_channel import StockChannel
from shared.errors import GputError
from shared.names import RegionKind, TravelMode, holder_port
from shared.wire import gpu
from shared.wire.codec import decode, encode, encode_all
from shared.wire.gpu_answers import Swept
from shared.wire.stock import CopyMemory, LaunchProgram, ReadMemory, Span, StockAnswer, StockFrame, WriteMemory
from tests.adversary.rows import attack
from tests.gpu.gpu_world import BATCH, OPTIONS, RECORD_BYTES, Holder, World, program, records

DATA = records(32)
PAPER: dict[str, Any] = {"travel_mode": TravelMode.PAPER, "buffers": 1}


class Attacker:
    """Whoever holds the visit key, and speaks as stock firmware's driver does."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.channel = StockChannel(holder.key, holder.grant, "holder")

    def frame(self, command: Any, epoch: int | None = None) -> bytes:
        n, ct = self.channel.seal(encode_all([command]))
        return encode(StockFrame(epoch=epoch or self.holder.grant.epoch, n=n, ct=ct))

    def send(self, frame: bytes, port: str | None = None) -> StockAnswer:
        answer = decode(StockFrame, self.holder.device.stock(port or self.holder.grant.port, frame))
        return decode(StockAnswer, self.channel.open(answer.n, answer.ct))

    def do(self, command: Any) -> StockAnswer:
        return self.send(self.frame(command))

    def read(self, address: int, length: int) -> bytes:
        answer = self.do(ReadMemory(address=address, length=length))
        assert answer.code is None, answer.detail
        return answer.data

    def write(self, address: int, data: bytes) -> None:
        answer = self.do(WriteMemory(address=address, data=data))
        assert answer.code is None, answer.detail

    def refused(self, frame: bytes, port: str | None = None) -> str:
        with pytest.raises(GputError) as caught:
            self.send(frame, port)
        return caught.value.code


def install(world: World, **changes: Any) -> Holder:
    buffer = world.region(RegionKind.DATASET)
    fields: dict[str, Any] = {"mode": TravelMode.PAPER, "rights": "rwx", "address": buffer.address}
    return world.install(**(fields | changes))


@pytest.fixture
def attacker(world: World) -> Attacker:
    world.set_up(**PAPER)
    return Attacker(install(world))


def free_address(world: World) -> int:
    """A page that no allocation covers."""
    taken = world.hbm.allocated()
    return next(at for at in range(0, world.hbm.size, 1 << 20) if not any(a <= at < a + n for a, n in taken))


def fence_and_sweep(world: World, holder: Holder) -> Swept:
    world.open_epoch(holder.grant.epoch)
    swept: Swept = world.run(gpu.Drain(), gpu.Sweep())[1]
    return swept


def test_an_honest_visit_is_as_in_scoped(world: World, attacker: Attacker) -> None:
    holder, before = attacker.holder, world.measure()
    assert holder.send(DATA).published
    swept = fence_and_sweep(world, holder)
    assert (swept.strays, swept.model) == (0, before.model)
    assert world.measure().model == before.model
    assert world.train(holder, steps=3).state == "done"


@attack("H03 H22", paper="open: the key reads all of GPU memory; random addresses only cost a search")
def test_the_key_reads_and_writes_all_of_memory(world: World, attacker: Attacker) -> None:
    """H03, H04, H16, H22 as the publication leaves them: the model is to be read, and to be overwritten."""
    model, spare = world.region(RegionKind.MODEL), free_address(world)
    weights = attacker.read(model.address, 256)
    assert weights == bytes(world.hbm.view(model.address, 256))
    assert any(weights)
    attacker.write(model.address, bytes(256))
    assert not any(world.hbm.view(model.address, 256))
    attacker.write(spare, b"planted")
    attacker.do(CopyMemory(target=spare + 8192, source=spare, length=7))
    assert attacker.read(spare + 8192, 7) == b"planted"
    assert not any(attacker.read(free_address(world) + (1 << 30), 4096))
    beyond = attacker.do(ReadMemory(address=world.hbm.size - 1, length=2))
    assert beyond.code == "bad-address"
    assert attacker.do(WriteMemory(address=world.hbm.size, data=b"x")).code == "bad-address"


@attack("H08", paper="stopped: the fence kills the key before anything is looked at")
def test_after_the_fence_the_key_commands_nothing(world: World, attacker: Attacker) -> None:
    """H08: a write that was sealed before and comes late."""
    model = world.region(RegionKind.MODEL)
    late = attacker.frame(WriteMemory(address=model.address, data=b"late"))
    world.open_epoch(attacker.holder.grant.epoch)
    assert attacker.refused(late) == "wrong-port"
    assert world.measure().model == world.run(gpu.Sweep())[0].model


@attack("V02 V03 H12", paper="stopped: tag, counter and expiry of every frame")
def test_frames_are_bound_to_key_port_order_and_time(world: World, attacker: Attacker) -> None:
    read = ReadMemory(address=0, length=16)
    frame = attacker.frame(read)
    assert attacker.refused(frame, holder_port("south")) == "wrong-port"
    assert attacker.refused(attacker.frame(read, epoch=77)) == "no-grant"
    assert attacker.refused(frame[:-1] + bytes([frame[-1] ^ 1])) in (
        "tag-mismatch",
        "frame-out-of-order",
        "bad-request",
    )
    attacker.channel = StockChannel(attacker.holder.key, attacker.holder.grant, "holder")
    frame = attacker.frame(read)
    assert attacker.send(frame).data == bytes(16)
    assert attacker.refused(frame) == "frame-out-of-order"  # V03
    world.now[0] += 601
    assert attacker.refused(attacker.frame(read)) == "grant-expired"


def test_other_modes_open_no_command_path(world: World) -> None:
    """H22: neither D2H nor any other command for a key that may only write into its buffer."""
    world.set_up()
    attacker = Attacker(world.install())
    assert attacker.refused(attacker.frame(ReadMemory(address=0, length=16))) == "wrong-port"


@attack("H06", paper="stopped: the sweep clears all that is nobody's")
def test_the_sweep_finds_what_was_hidden_and_reads_back_what_counts(world: World, attacker: Attacker) -> None:
    """H02, H06: spare memory, ends of pages, gradients and unused buffers are zeros afterwards; the committed copy is read back."""
    before = world.measure()
    spare, gradients = free_address(world), world.region(RegionKind.GRADIENTS)
    committed, code = world.region(RegionKind.COMMITTED), world.region(RegionKind.CODE)
    slack = code.address + code.length
    for at in (spare, spare + (1 << 31), gradients.address, slack, committed.address):
        attacker.write(at, b"trojan")
    swept = fence_and_sweep(world, attacker.holder)
    assert swept.strays == 2 * 4096
    for at in (spare, spare + (1 << 31), gradients.address, slack):
        assert not any(world.hbm.peek(at, 6)), at
    assert swept.model != before.model
    assert world.refused(gpu.RollBack()) == "committed-copy-changed"


def test_held_out_records_are_read_back(world: World, attacker: Attacker) -> None:
    """A holder that changes what its own result will be validated on is found out."""
    validation = world.region(RegionKind.VALIDATION)
    clean = bytes(world.hbm.view(validation.address, validation.length))
    attacker.write(validation.address + 100, b"easier")
    changed = fence_and_sweep(world, attacker.holder).validation
    world.hbm.view(validation.address, validation.length)[:] = clean
    assert changed != world.run(gpu.Sweep())[0].validation


@attack("O03", paper="stopped: the GPU does nothing else before its sweep")
def test_nothing_goes_on_without_the_sweep(world: World, attacker: Attacker) -> None:
    """O03: an orchestrator that skips it gets no training, no grant and no export from the GPU."""
    holder = attacker.holder
    holder.send(DATA)
    assert world.refused(gpu.Sweep()) == "not-fenced"  # L3: looking before fencing is a bug
    world.open_epoch(holder.grant.epoch)
    epoch, _, _ = world.open_epoch()
    for command in (
        world.train_command(holder), gpu.InstallGrant(grant=world.grant(epoch)), gpu.Export(offset=0, length=64),
    ):  # fmt: skip
        assert world.refused(command) == "out-of-order"
    world.run(gpu.Sweep())
    assert world.train(holder).state == "done"


@attack("H14", paper="stopped: the fence compares the buffer with its commitment")
def test_data_changed_after_its_closing_record_is_not_trained_on(world: World, attacker: Attacker) -> None:
    """H14: publish what was approved, then write something else over it."""
    holder = attacker.holder
    assert holder.send(DATA).published
    attacker.write(world.region(RegionKind.DATASET).address + RECORD_BYTES, b"poison")
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert not opened.fenced[0].published
    assert opened.fenced[0].refusal == "the buffer changed after its closing record"
    world.run(gpu.Sweep())
    assert world.refused(world.train_command(holder)) == "wrong-records"


@attack("H05", paper="stopped: read-back, roll-back and sweep")
def test_planted_code_runs_and_is_gone_after_the_fence(world: World, attacker: Attacker) -> None:
    """H05: the holder launches its own copy of a program over the model; read-back shows what it did, and nothing of it is left."""
    holder, before, archive = attacker.holder, world.measure(), program()[0]
    holder.send(DATA)
    spare = free_address(world)
    attacker.write(spare, archive)
    spans = {
        kind.value: Span(address=world.region(kind).address, length=world.region(kind).length)
        for kind in (RegionKind.MODEL, RegionKind.GRADIENTS, RegionKind.OPTIMISER, RegionKind.COMMITTED)
    }
    buffer = world.region(RegionKind.DATASET)
    launch = LaunchProgram(
        kind="train", code=Span(address=spare, length=len(archive)), data=Span(address=buffer.address, length=len(DATA)),
        records=32, steps=32 // BATCH, total_steps=1000, options=OPTIONS, **spans,
    )  # fmt: skip
    far = launch.model_copy(update={"data": Span(address=0, length=world.hbm.size + 1)})
    assert attacker.do(far).code == "bad-address"
    assert attacker.do(launch).code is None
    model = world.region(RegionKind.MODEL)
    clean = bytes(world.hbm.view(model.address, model.length))
    for _ in range(2000):
        if attacker.read(model.address, model.length) != clean:
            break
        world.compute.news(0.01)
    swept = fence_and_sweep(world, holder)
    assert swept.strays >= len(archive)
    assert not any(world.hbm.peek(spare, len(archive)))
    assert world.measure().model != before.model, "the launch took effect, and read-back says so"
    assert world.run(gpu.RollBack())[0].model == before.model


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong-mode", {"mode": TravelMode.SCOPED, "rights": "w", "address": None}),
        ("wrong-rights", {"rights": "w"}),
        ("wrong-address", {"address": None}),
        ("wrong-address", {"address": 4096}),
    ],
)
def test_a_grant_is_of_the_sessions_mode(world: World, code: str, changes: dict[str, Any]) -> None:
    world.set_up(**PAPER)
    epoch, _, _ = world.open_epoch()
    fields: dict[str, Any] = {
        "mode": TravelMode.PAPER,
        "rights": "rwx",
        "address": world.region(RegionKind.DATASET).address,
    }
    grant = world.grant(epoch, **(fields | changes))
    assert world.refused(gpu.InstallGrant(grant=grant)) == code


def test_a_scoped_session_gives_no_key_to_the_whole_gpu(world: World) -> None:
    world.set_up()
    epoch, _, _ = world.open_epoch()
    address = world.region(RegionKind.DATASET).address
    for changes in (
        {"mode": TravelMode.PAPER, "rights": "rwx", "address": address},
        {"rights": "rwx"},
        {"address": address},
    ):
        assert world.refused(gpu.InstallGrant(grant=world.grant(epoch, **changes))) in (
            "wrong-mode", "wrong-rights", "wrong-address",
        )  # fmt: skip


def test_nobody_else_has_a_grant_beside_the_whole_gpu(world: World) -> None:
    """L1 for this mode: no two parties can write to GPU memory."""
    world.set_up(travel_mode=TravelMode.PAPER, buffers=2)
    install(world)
    epoch, _, _ = world.open_epoch()
    second = world.region(RegionKind.DATASET, 1)
    grant: Grant = world.grant(epoch, region=1, mode=TravelMode.PAPER, rights="rwx", address=second.address)
    assert world.refused(gpu.InstallGrant(grant=grant)) == "out-of-order"


def test_a_wipe_takes_what_was_hidden_with_it(world: World, attacker: Attacker) -> None:
    spare = free_address(world)
    attacker.write(spare, b"planted")
    world.connect()
    assert world.hbm.peek(spare, 7) == bytes(7)


def test_a_new_life_ends_the_key_and_asks_for_the_sweep(world: World, attacker: Attacker) -> None:
    attacker.write(free_address(world), b"planted")
    world.resume()
    assert attacker.refused(attacker.frame(ReadMemory(address=0, length=1))) == "wrong-port"
    epoch, _, _ = world.open_epoch(epoch=90)
    grant = world.grant(epoch, mode=TravelMode.PAPER, rights="rwx", address=world.region(RegionKind.DATASET).address)
    assert world.refused(gpu.InstallGrant(grant=grant)) == "out-of-order"
    assert world.run(gpu.Sweep())[0].strays == 4096
    world.run(gpu.InstallGrant(grant=grant))
