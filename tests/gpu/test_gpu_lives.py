"""Lives and frames on a real device: resume, wipe, refusal of replayed, forged and out-of-order frames and commands (V10, V21, V24)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from shared.crypto import schedule
from shared.errors import GputError
from shared.names import RegionKind, TravelMode
from shared.protocol.travel import TRAVEL
from shared.wire import gpu
from shared.wire.codec import decode, encode, encode_all
from tests.adversary.rows import attack
from tests.gpu.gpu_world import MANIFEST, RECORD_BYTES, SESSION, World, program, records

DATA = records(32)


def everything(world: World) -> bytes:
    """All bytes of all allocated memory."""
    return b"".join(bytes(world.hbm.view(start, length)) for start, length in world.hbm.allocated())


@attack("V24", scoped="stopped: a new life has keys and counters of its own; older grants are dead")
def test_a_new_life_keeps_the_model_and_nothing_of_the_holders(world: World) -> None:
    world.set_up()
    first = world.visit(DATA)
    world.train(first, "w1")
    committed = world.run(gpu.Commit(work="w1"))[0]
    open_grant = world.install(region=1)
    sealed = open_grant.seal(DATA)
    open_grant.copy(sealed[0])
    before = world.measure()
    regions = world.regions

    opened = world.connect(resume=True)
    assert (opened.life, opened.boot_counter, opened.session) == (2, before.boot_counter, SESSION)
    with pytest.raises(GputError) as caught:
        open_grant.copy(sealed[1])
    assert caught.value.code == "no-grant"
    held = everything(world)
    assert DATA[:8] not in held
    assert DATA[RECORD_BYTES : RECORD_BYTES + 8] not in held
    status = world.run(gpu.Status())[0]
    assert [(r.handle, r.address, r.length) for r in status.regions] == [
        (r.handle, r.address, r.length) for r in regions
    ]
    assert {r.phase.value for r in status.regions if r.kind is RegionKind.DATASET} == {"CLEAN"}
    assert (status.ready, status.epochs, status.step) == (False, [], 3)

    assert world.refused(gpu.SetReady(), gpu.Measure(nonce=bytes(32))) == "out-of-order"  # the program went too
    upload, bulk = world.program_command()
    assert not world.run(upload, gpu.SetReady(), bulk=bulk)[0].rebuilt
    after = world.measure()
    assert (after.model, after.optimiser, after.control) == (before.model, before.optimiser, before.control)
    # Finished work is still known by its key, its commit repeats, and its visit can be closed.
    assert world.run(gpu.Poll(work="w1"))[0].state == "done"
    assert world.run(gpu.Commit(work="w1"))[0] == committed
    world.run(gpu.CloseVisit(visit=first.grant.visit))
    # Epoch numbers go on.
    assert world.refused(gpu.OpenEpoch(epoch=1, entropy=bytes(32))) == "epoch-not-next"
    world.visit(DATA)


def test_a_training_cut_off_by_a_new_life_has_failed_and_rolls_back(world: World) -> None:
    world.set_up()
    before = world.measure()
    holder = world.visit(records(128))
    world.run(world.train_command(holder, steps=16))
    world.resume()
    state = world.run(gpu.Poll(work="w1"))[0]
    if state.state == "failed":
        assert state.code == "work-interrupted"
        assert world.refused(gpu.Commit(work="w1")) == "nothing-to-commit"
    assert world.run(gpu.RollBack())[0].model == before.model == world.measure().model


@attack("V14", any="stopped: each life needs a proof for the next number; older ones are refused")
@pytest.mark.parametrize(
    "change",
    [{"life": 1}, {"life": 3}, {"secret": bytes(32)}, {"boot": 0}],
    ids=["older life", "life skipped", "wrong secret", "other boot"],
)
def test_an_invalid_resume_proof_changes_nothing(world: World, change: dict[str, Any]) -> None:
    world.set_up()
    before = world.measure()
    twin = World(world.device, world.hbm, world.compute, world.now, world.faults)
    twin.resume_secret, twin.life = world.resume_secret, world.life
    twin.boot = change.pop("boot", world.boot)
    with pytest.raises(GputError) as caught:
        twin.connect(resume=True, **change)
    assert caught.value.code == "spdm-error"
    assert world.measure() == before


@attack("V21", any="stopped: the GPU wipes itself first")
def test_a_session_without_the_resume_secret_wipes_first(world: World) -> None:
    world.set_up()
    holder = world.visit(DATA)
    world.train(holder)
    weights = world.hbm.view(world.region(RegionKind.MODEL).address, 64).tobytes()
    extents = world.hbm.allocated()
    stranger = World(world.device, world.hbm, world.compute, world.now, world.faults)
    opened = stranger.connect()
    assert (opened.life, opened.session, opened.boot_counter) == (1, None, world.boot + 1)
    assert world.hbm.allocated() == []
    for start, length in extents:
        held = world.hbm._view[start : start + length].tobytes()
        assert not any(held)
    assert weights  # what was there was something
    with pytest.raises(GputError):  # the old life's frames open nothing
        world.run(gpu.Status())
    with pytest.raises(GputError):  # nor does its resume secret
        world.connect(resume=True)
    assert stranger.refused(gpu.Poll(work="w1")) == "out-of-order"


def test_a_repeated_frame_is_answered_with_the_same_bytes_and_done_once(world: World) -> None:
    world.set_up()
    epoch, _, _ = world.open_epoch()
    world.run(gpu.InstallGrant(grant=world.grant(epoch)))
    frame = world.sent[-1]
    assert world.device.commands(frame) == world.device.commands(frame)
    assert world.run(gpu.Status())[0].epochs == [epoch]
    with pytest.raises(GputError) as caught:
        world.device.commands(frame)  # no longer the last one
    assert caught.value.code == "frame-out-of-order"


COUNTED = "stopped: commands are counted and authenticated"


@attack("V12", scoped=COUNTED, direct=COUNTED, paper=COUNTED)
@pytest.mark.parametrize("mode", TravelMode)
def test_forged_truncated_and_reordered_frames_change_nothing(world: World, mode: TravelMode) -> None:
    world.set_up(travel_mode=mode, buffers=TRAVEL[mode].buffers)
    assert world.channel is not None
    upload, bulk = world.program_command()
    n, ct, sealed = world.channel.seal(encode_all([upload, gpu.Status()]), bulk)
    good = gpu.CommandFrame(life=1, n=n, ct=ct, bulk=sealed)
    bad = [
        good.model_copy(update={"n": n + 1}),
        good.model_copy(update={"life": 2}),
        good.model_copy(update={"ct": ct[:-1] + bytes([ct[-1] ^ 1])}),
        good.model_copy(update={"bulk": []}),
        good.model_copy(update={"bulk": [sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])]}),
        good.model_copy(update={"bulk": [*sealed, *sealed]}),
    ]
    for frame in bad:
        with pytest.raises(GputError):
            world.device.commands(encode(frame))
    with pytest.raises(GputError):
        world.device.commands(encode(good)[:-1])
    answer = decode(gpu.CommandFrame, world.device.commands(encode(good)))
    assert answer.n == n


def test_a_batch_ends_at_its_first_failure_and_what_ran_stays(world: World) -> None:
    world.set_up()
    entropy = os.urandom(32)
    answers = world.answers(
        gpu.OpenEpoch(epoch=1, entropy=entropy), gpu.Poll(work="none"), gpu.OpenEpoch(epoch=2, entropy=entropy)
    )
    assert [a.is_ for a in answers] == ["epoch_opened", "failure"]
    assert answers[1].code == "unknown-work"
    assert world.run(gpu.Status())[0].epochs == [1]
    # A batch that is no list of commands is answered too: the channel stays in step.
    assert world.channel is not None
    n, ct, bulk = world.channel.seal(b"\x81\xa0")
    frame = decode(gpu.CommandFrame, world.device.commands(encode(gpu.CommandFrame(life=1, n=n, ct=ct, bulk=bulk))))
    world.channel.open(frame.life, frame.n, frame.ct, frame.bulk)
    world.run(gpu.Status())


EARLY: list[Any] = [
    gpu.InitSession(session=SESSION, manifest=MANIFEST),
    gpu.UploadProgram(length=1, records=1),
    gpu.OpenEpoch(epoch=1, entropy=bytes(32)),
    gpu.Measure(nonce=bytes(32)),
    gpu.SetReady(),
    gpu.InitModel(source="seed"),
    gpu.RollBack(),
    gpu.Scrub(region=1),
    gpu.Commit(work="w"),
    gpu.Export(offset=0, length=1),
    gpu.Drain(),
    gpu.Evaluate(work="w", region=1, records=1),
    gpu.Train(work="w", visit="v_" + "0" * 16, region=1, records=1, first_step=0, steps=1),
    gpu.Checkpoint(key=bytes(32), name="c", length=1),
    gpu.Restore(key=bytes(32), name="c", offset=0, length=1, records=1),
    gpu.Poll(work="w"),
]


def test_every_command_waits_for_its_turn(world: World) -> None:
    world.connect()
    for command in EARLY[1:]:
        assert world.refused(command) == "out-of-order", command
    assert world.refused(gpu.OpenLife()) == "out-of-order"
    world.run(EARLY[0])
    assert world.refused(EARLY[0]) == "out-of-order"
    upload, bulk = world.program_command()
    world.run(upload, bulk=bulk)
    for command in EARLY[2:10]:
        assert world.refused(command) == "out-of-order", command
    world.run(world.configure_command())
    assert world.refused(world.configure_command()) == "out-of-order"
    assert world.refused(gpu.SetReady()) == "out-of-order"  # no model yet
    assert world.refused(gpu.InitModel(source="seed")) == "wrong-model-source"


def test_a_session_ends_with_a_wipe_and_its_answer(world: World) -> None:
    world.set_up()
    boot = world.boot
    assert world.run(gpu.EndSession())[0].is_ == "done"
    assert world.hbm.allocated() == []
    assert world.device.boot_counter == boot + 1
    with pytest.raises(GputError):
        world.run(gpu.Status())
    assert world.connect().session is None


def test_out_of_memory_leaves_nothing_allocated(world: World) -> None:
    world.connect()
    upload, bulk = world.program_command()
    world.run(gpu.InitSession(session=SESSION, manifest=MANIFEST), upload, bulk=bulk)
    used = world.hbm.used
    assert world.refused(world.configure_command(buffer_bytes=1 << 40)) == "gpu-out-of-memory"
    assert world.hbm.used == used
    world.run(world.configure_command())


def test_another_program_is_refused_once_memory_is_configured(world: World) -> None:
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.programs import builtin

    world.set_up()
    before = world.measure()
    other, _ = build(builtin("classifier", features=4, classes=2))
    assert world.refused(gpu.UploadProgram(length=len(other), records=1), bulk=[other]) == "program-changed"
    broken = program()[0][:-1]
    assert world.refused(gpu.UploadProgram(length=len(broken), records=1), bulk=[broken]) == "invalid-program"
    assert world.refused(gpu.UploadProgram(length=5, records=1), bulk=[b"1234"]) == "bulk-mismatch"
    assert world.refused(gpu.UploadProgram(length=5, records=2), bulk=[b"12345"]) == "bulk-mismatch"
    assert world.measure() == before


def test_root_keys_differ_by_life_and_draw(world: World) -> None:
    world.set_up()
    assert schedule.root_key(world.export, 1) != schedule.root_key(world.export, 2)
    _, one, first = world.open_epoch()
    _, two, second = world.open_epoch()
    assert first != second
    assert one.entropy != two.entropy
