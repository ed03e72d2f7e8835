"""A hostile platform, alone and with a holder, against a bare device in every travel mode: links, keys, routes, lives, a scrub left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.crypto.aead import OpeningChannel, SealingChannel
from shared.crypto.schedule import legacy_rotate
from shared.errors import VerificationFailed
from shared.names import TravelMode
from shared.wire import gpu
from shared.wire.codec import decode, encode, encode_all
from shared.wire.copy import HEADER_BYTES, copy_context
from shared.wire.stock import ReadMemory, StockFrame
from tests.adversary.rows import attack
from tests.adversary.visitor import ALL_MODES, DATA, Visitors, code_of
from tests.gpu.gpu_world import Holder, Refused, World, records
from tests.gpu.test_gpu_paper import Attacker
from tests.world.world_recorder import recording

EACH_MODE = pytest.mark.parametrize("mode", ALL_MODES)
WITH_MUX = [TravelMode.SCOPED, TravelMode.PAPER]
GENERATIONS = 64
LABELS = ("Lce00_h2d_user", "Lce02_h2d_user", "Lce02_h2d_kernel", "visit")


@pytest.fixture
def visitors(device: World, mode: TravelMode) -> Visitors:
    made = Visitors(device, mode)
    made.set_up()
    return made


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "epoch": lambda r: [r[0], flipped(r[1], 8), *r[2:]],
    "index": lambda r: [r[0], flipped(r[1], 16), *r[2:]],
    "total": lambda r: [r[0], flipped(r[1], 20), *r[2:]],
    "ciphertext": lambda r: [r[0], flipped(r[1], HEADER_BYTES + 9), *r[2:]],
    "tag": lambda r: [r[0], flipped(r[1], len(r[1]) - 1), *r[2:]],
    "reordered": lambda r: [r[1], r[0], *r[2:]],
    "duplicated": lambda r: [r[0], r[1], flipped(r[1], HEADER_BYTES), *r[2:]],
    "dropped": lambda r: [r[0], *r[2:]],
    "cut short": lambda r: [r[0][:-7], *r[1:]],
    "end missing": lambda r: r[:-1],
}


@attack("V02 V04", paper="stopped: tag, index and total; the buffer is erased")
@pytest.mark.parametrize("mode", [TravelMode.PAPER])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_records_publish_nothing(visitors: Visitors, mode: TravelMode, change: str) -> None:
    holder = visitors.install()
    assert visitors.bring(holder, CHANGES[change](holder.seal(DATA))) is not None
    assert not visitors.fence(holder).published
    assert visitors.world.refused(visitors.world.train_command(holder)) in ("out-of-order", "wrong-records")


@attack(
    "V05",
    scoped="stopped: each direction has a key of its own",
    direct="stopped: each direction has a key of its own",
    paper="stopped: each direction has a key of its own",
)
@EACH_MODE
def test_nothing_can_be_reflected(visitors: Visitors, mode: TravelMode) -> None:
    """The GPU's own answers, sent to it as if they were requests, and requests, sent back as if they were its answers: on the
    orchestrator's port and on the holder's."""
    world, channel = visitors.world, visitors.world.channel
    assert channel is not None
    n, ct, bulk = channel.seal(encode_all([gpu.Status()]), [])
    answer = world.device.commands(encode(gpu.CommandFrame(life=world.life, n=n, ct=ct, bulk=bulk)))
    assert code_of(lambda: world.device.commands(answer)) in ("frame-out-of-order", "tag-mismatch")
    with pytest.raises(VerificationFailed, match="does not authenticate"):
        channel.open(world.life, n, ct, bulk)
    told = decode(gpu.CommandFrame, answer)
    channel.open(told.life, told.n, told.ct, told.bulk)
    forward = encode(gpu.CommandFrame(life=told.life, n=told.n + 1, ct=told.ct, bulk=told.bulk))
    assert code_of(lambda: world.device.commands(forward)) == "tag-mismatch"
    holder = visitors.install()
    if mode is TravelMode.PAPER:
        attacker = Attacker(holder)
        own = attacker.frame(ReadMemory(address=0, length=16))
        raw = world.device.stock(holder.grant.port, own)
        with pytest.raises(VerificationFailed, match="does not authenticate"):
            attacker.channel.open(decode(StockFrame, own).n, decode(StockFrame, own).ct)
        assert code_of(lambda: world.device.stock(holder.grant.port, raw)) == "frame-out-of-order"
        again = decode(StockFrame, raw).model_copy(update={"n": 2})
        assert code_of(lambda: world.device.stock(holder.grant.port, encode(again))) == "tag-mismatch"
    door = world.device.stage if mode is TravelMode.DIRECT else world.device.copy
    assert code_of(lambda: door(holder.grant.port, answer)) == "malformed-copy-record"
    assert not any(visitors.buffer(holder))
    world.run(gpu.Status())


@attack(
    "V07 V06",
    scoped="stopped: a grant is for one port; a route leads no other key anywhere",
    paper="stopped: a grant is for one port; nobody else has one meanwhile",
)
@pytest.mark.parametrize("mode", WITH_MUX)
def test_a_route_gives_nobody_anything(visitors: Visitors, mode: TravelMode) -> None:
    """Two machines behind one GPU, record by record: each port takes its own visit's records only, and both regions are exact."""
    world = visitors.world
    north = visitors.install()
    if mode is TravelMode.PAPER:
        with pytest.raises(Refused, match="out-of-order"):
            visitors.install(holder="south", port="holder-south")
        for record in north.seal(DATA):
            assert code_of(lambda record=record: world.device.copy("holder-south", record)) == "no-grant"
            north.copy(record)
        assert visitors.buffer(north)[: len(DATA)] == DATA
        return
    other = records(32, seed=3)
    south = visitors.install(other, region=1, holder="south", port="holder-south")
    for mine, theirs in zip(north.seal(DATA), south.seal(other), strict=True):
        assert code_of(lambda mine=mine: world.device.copy("holder-south", mine)) == "no-grant"
        assert code_of(lambda theirs=theirs: world.device.copy("holder-north", theirs)) == "no-grant"
        north.copy(mine)
        south.copy(theirs)
    assert visitors.buffer(north)[: len(DATA)] == DATA
    assert visitors.buffer(south)[: len(other)] == other


def opens(key: bytes, victim: Holder) -> bool:
    """Whether a key opens any of the victim's recorded records; mask, counters and context are given away for nothing."""
    for index, record in enumerate(victim.sent):
        channel = OpeningChannel(
            key, label="thief", iv_mask=victim.mask, channel_counter=victim.installed.channel_counter
        )
        channel.counter = index
        try:
            channel.open(record[HEADER_BYTES:], record[:HEADER_BYTES] + copy_context(victim.grant))
        except VerificationFailed:
            continue
        return True
    return False


def closure(key: bytes) -> list[bytes]:
    """What the stock driver's rotation makes of a key, for each label, over many generations."""
    found = [key]
    for label in LABELS:
        at = key
        for _ in range(GENERATIONS):
            at = legacy_rotate(at, label)
            found.append(at)
    return found


@attack(
    "H10 C01",
    scoped="stopped: each epoch's key is drawn anew, with randomness of the GPU",
    direct="stopped: each epoch's key is drawn anew and agreed with the holder",
    paper="stopped: each epoch's key is drawn anew, with randomness of the GPU",
)
@EACH_MODE
def test_old_keys_open_nothing_of_a_later_visit(visitors: Visitors, mode: TravelMode) -> None:
    """All keys of earlier visits and whatever a ratchet makes of them, against the platform's whole transcript of the next visit."""
    world, kept = visitors.world, []
    for number in range(3):
        holder = visitors.visit(visit=f"v_{number:016d}")
        kept.append(holder.key)
        world.train(holder, f"w{number}", first=3 * number)
        visitors.close(holder, f"w{number}")
    victim = visitors.visit(records(32, seed=8), holder="south", port="holder-south", visit="v_" + "9" * 16)
    assert opens(victim.key, victim), "or the thief's tools would show nothing"
    assert not any(opens(key, victim) for old in kept for key in closure(old))


def test_the_stock_rotation_gives_the_next_key_away(device: World) -> None:
    """H10 under the stock driver's rotation: the attack succeeds, which is why no visit key is made so (shared/crypto/schedule.py)."""
    visitors = Visitors(device, TravelMode.SCOPED)
    visitors.set_up()
    first, victim = visitors.visit(), visitors.install(holder="south", port="holder-south", region=1)
    rotated = first.key
    for _ in range(5):
        rotated = legacy_rotate(rotated, "Lce02_h2d_user")
    counter = victim.installed.channel_counter
    victim.sent = victim.seal(
        DATA, SealingChannel(rotated, label="visit", iv_mask=victim.mask, channel_counter=counter)
    )
    assert any(opens(key, victim) for key in closure(first.key))


NEWEST = "stopped: the GPU obeys the newest life only"


@attack("V14", scoped=NEWEST, direct=NEWEST, paper=NEWEST)
@EACH_MODE
def test_of_two_live_orchestrators_one_is_obeyed(visitors: Visitors, mode: TravelMode) -> None:
    """The same storage and secret, twice: whoever opened the newest life is obeyed, and each older one is dead from that moment, with
    the grant that it gave."""
    device, holder = visitors.world, visitors.install()
    sealed = holder.seal(DATA)
    clone = World(device.device, device.hbm, device.compute, device.now, device.faults)
    clone.resume_secret, clone.life, clone.boot, clone.regions = (
        device.resume_secret, device.life, device.boot, device.regions,
    )  # fmt: skip
    clone.connect(resume=True)
    assert code_of(lambda: device.run(gpu.Status())) != "done"
    assert visitors.leave(holder, sealed) == "no-grant"
    assert clone.run(gpu.Status())[0].step == 0
    assert code_of(lambda: device.connect(resume=True)) == "spdm-error"  # the number that it would open next is taken
    assert clone.run(gpu.Status())[0].step == 0


@attack(
    "V24",
    scoped="stopped: a new life has keys and counters of its own",
    direct="stopped: a new life has keys and counters of its own",
    paper="stopped: a new life has keys and counters of its own",
)
@EACH_MODE
def test_a_restored_orchestrator_uses_no_iv_twice(device: World, mode: TravelMode) -> None:
    """Its memory put back to before a visit: what it then seals is under another key; the older life's records open nothing."""
    visitors = Visitors(device, mode)
    with recording() as recorder:
        visitors.set_up()
        before, old = visitors.install(), device.channel
        sealed = before.seal(DATA)
        device.resume()
        if mode is TravelMode.PAPER:
            device.run(gpu.Sweep())
        assert visitors.bring(before, sealed) == "no-grant"
        after = visitors.visit()
        assert (after.key, after.mask) != (before.key, before.mask)
        assert old is not None
        n, ct, bulk = old.seal(encode_all([gpu.Status()]), [])
        assert (
            code_of(lambda: device.device.commands(encode(gpu.CommandFrame(life=1, n=n, ct=ct, bulk=bulk)))) != "done"
        )
    assert recorder.reused == []


@attack(
    "O03",
    scoped="stopped: the GPU grants a region by its own scrub proof only",
    direct="stopped: the GPU grants a region by its own scrub proof only",
    paper="stopped: the GPU grants a region by its own scrub proof only",
)
@EACH_MODE
def test_an_orchestrator_that_skips_the_scrub_gets_no_grant(visitors: Visitors, mode: TravelMode) -> None:
    world = visitors.world
    holder = visitors.visit()
    world.train(holder)
    world.run(gpu.Commit(work="w1"))
    assert world.refused(gpu.CloseVisit(visit=holder.grant.visit)) == "visit-not-scrubbed"
    with pytest.raises(Refused, match="out-of-order"):
        visitors.install(holder="south", port="holder-south")
    world.run(gpu.Scrub(region=holder.grant.region))
    visitors.install(holder="south", port="holder-south")
