"""Faults of the device's own at a handshake: nothing is half done, the requester hears that there was one, and the agent's log which."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from gpu_agent.api import build_gpu
from gpu_agent.boot_counter import BootCounter
from gpu_agent.hardware.address_space import pages
from gpu_agent.hardware.device import Device
from gpu_agent.settings import AgentSettings
from shared.attestation.spdm_requester import SpdmRequester
from shared.errors import ConfigurationError, GputError, Unavailable
from shared.names import RegionKind
from shared.service.clock import system_entropy
from shared.wire import gpu
from shared.wire.codec import encode, encode_all
from shared.wire.gpu import MAX_BULK_RECORD
from shared.wire.stock import ReadMemory, StockFrame
from tests.gpu.gpu_training import DATA, committed_visit
from tests.gpu.gpu_world import MANIFEST, SESSION, World, device_folder
from tests.gpu.test_gpu_paper import PAPER, Attacker, install


def stranger(world: World) -> World:
    return World(world.device, world.hbm, world.compute, world.now, world.faults)


def shake(device: Device) -> None:
    requester = SpdmRequester(entropy=system_entropy, signing_key_digest=bytes(32))
    message: bytes | None = requester.start()
    while message is not None:
        message = requester.feed(device.spdm(message))


def full() -> int:
    raise ConfigurationError("the boot counter cannot be used", code="boot-counter")


def test_a_wipe_that_cannot_be_counted_touches_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that stays where it was would deny that anything had happened, and the owner could explain no life any more."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    before, extents = world.measure(), world.hbm.allocated()

    with monkeypatch.context() as patched:
        patched.setattr(world.device._state, "_next_boot", full)
        with pytest.raises(Unavailable) as caught:
            stranger(world).connect()
        assert (caught.value.code, [getattr(one, "code", "") for one in world.faults]) == (
            "spdm-device-fault",
            ["boot-counter"],
        )
    world.faults.clear()
    assert (world.hbm.allocated(), world.device.boot_counter) == (extents, world.boot)
    assert world.measure() == before, "the old life goes on"
    assert world.resume().life == 2, "and so does its session"
    assert world.measure().model == before.model


def test_a_session_that_its_owner_ends_is_destroyed_even_if_that_cannot_be_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks twice: what stayed would stay until somebody else came."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    world.visit(DATA)
    with monkeypatch.context() as patched:
        patched.setattr(world.device._state, "_next_boot", full)
        assert world.refused(gpu.EndSession()) == "boot-counter", "whoever ended it hears what is wrong"
        assert (world.hbm.allocated(), world.device._state.life, world.device._state.bound) == ([], 0, None)
        with pytest.raises(GputError) as gone:
            world.run(gpu.Status())
        assert gone.value.code == "no-life"
        with pytest.raises(GputError) as refused:
            world.connect(resume=True)
        assert refused.value.code == "spdm-error"
        with pytest.raises(Unavailable):
            stranger(world).connect()
    assert [getattr(one, "code", "") for one in world.faults] == ["boot-counter"], "and nobody comes next uncounted"
    world.faults.clear()
    assert stranger(world).connect().boot_counter == world.boot + 1


def test_a_wipe_that_fails_half_way_has_forgotten_the_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_up()

    def stuck() -> list[Any]:
        raise Unavailable("the compute process did not die in time", code="compute-stuck")

    with monkeypatch.context() as patched:
        patched.setattr(world.compute, "destroy", stuck)
        with pytest.raises(Unavailable) as caught:
            stranger(world).connect()
        assert (caught.value.code, [getattr(one, "code", "") for one in world.faults]) == (
            "spdm-device-fault",
            ["compute-stuck"],
        )
    world.faults.clear()
    assert world.device.boot_counter == world.boot + 1, "which whoever had it can see"
    with pytest.raises(GputError) as refused:
        world.run(gpu.Status())
    assert refused.value.code == "no-life"
    with pytest.raises(GputError) as gone:
        world.connect(resume=True)
    assert gone.value.code == "spdm-error"
    assert world.hbm.allocated() != []
    assert stranger(world).connect().boot_counter == world.boot + 2
    assert world.hbm.allocated() == []


def test_a_refused_resume_is_no_fault(world: World) -> None:
    world.set_up()
    with pytest.raises(GputError) as caught:
        world.connect(resume=True, secret=bytes(32))
    assert (caught.value.code, caught.value.got, world.faults) == ("spdm-error", "0x01", [])


def test_the_agents_log_names_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CapturingLogger()
    monkeypatch.setattr("gpu_agent.api._log", log)
    settings = AgentSettings(
        data_dir=tmp_path, device_dir=device_folder(), platform_key=tmp_path / "mux.pub", hbm_bytes=1 << 22
    )
    unit = build_gpu(settings)
    try:
        (tmp_path / "gpu-0.new").mkdir()  # where the counter's next value would be written
        with pytest.raises(Unavailable):
            shake(unit.device)
        unit.device._processor._report(ValueError("bytes of a record"))
    finally:
        unit.power_off()
    first, second = log.calls
    assert (first.method_name, first.args) == ("error", ("device fault",))
    assert (first.kwargs["fault"], first.kwargs["code"]) == ("ConfigurationError", "boot-counter")
    assert str(tmp_path) in first.kwargs["detail"]
    assert second.kwargs == {"gpu": "gpu-0", "fault": "ValueError"}, "of a bug's words nothing is told"


def test_too_little_room_for_the_control_structures_leaves_nothing_allocated(world: World) -> None:
    """Theirs is the last that there may be too little of; and what was refused may be asked for again, smaller."""
    world.set_up()
    spare = [region for region in world.regions if region.kind is RegionKind.COMMITTED][1:]
    regions = sum(pages(region.length) for region in world.regions) - sum(pages(region.length) for region in spare)
    whole = world.hbm.backing
    world.connect()
    upload, bulk = world.program_command()
    world.run(gpu.InitSession(session=SESSION, manifest=MANIFEST), upload, bulk=bulk)
    before = world.hbm.used
    try:
        world.hbm.backing = regions
        assert world.refused(world.configure_command()) == "gpu-out-of-memory"
        assert (world.hbm.used, world.device._state.session.config) == (before, None)
        assert world.run(world.configure_command(buffers=1))[0].regions
    finally:
        world.hbm.backing = whole


def test_the_keys_of_a_session_that_was_ended_are_gone(world: World) -> None:
    world.set_up()
    keys = world.device._processor._keys
    assert keys is not None
    assert keys.key("gsp_cpu_locked_rpc")
    world.run(gpu.EndSession())
    with pytest.raises(GputError) as caught:
        keys.key("gsp_cpu_locked_rpc")
    assert caught.value.code == "key-erased"
    assert world.device.commands(world.sent[-1]), "its last answer may still be repeated"


def test_an_spdm_message_between_the_look_and_the_wait_ends_a_poll(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, compute, device = threading.Event(), world.compute, world.device
    original = compute.news

    def pressed(timeout_s: float, since: int | None = None) -> list[Any]:
        compute.wake()  # as the message does, just when the poll had seen that nobody presses
        news = original(timeout_s, since)
        waited.set()
        return news

    monkeypatch.setattr(compute, "news", pressed)

    def wait() -> None:
        with device._ordered():
            device._wait(30.0)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waited.wait(15), "the wake was lost"
    thread.join()


@pytest.mark.parametrize("text", ["-5", "1_000", "\u0663", "9" * 30, "", "+1"])
def test_only_what_it_writes_is_a_boot_counter(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu-0.boot"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        BootCounter(path)
    assert caught.value.code == "boot-counter"
    path.write_text("41\n")
    assert BootCounter(path).advance() == 42


@pytest.mark.parametrize("number", [0, 2])
def test_a_stock_frame_of_another_number_of_commands_is_answered_in_order(world: World, number: int) -> None:
    world.set_up(**PAPER)
    thief = Attacker(install(world))
    read = ReadMemory(address=0, length=16)
    n, ct = thief.channel.seal(encode_all([read] * number))
    answer = thief.send(encode(StockFrame(epoch=thief.holder.grant.epoch, n=n, ct=ct)))
    assert answer.code == "bad-request"
    assert thief.do(read).code is None, "both sides still count alike"


def test_a_bulk_record_has_two_mebibytes_at_most(world: World) -> None:
    world.set_up()
    place = world.region(RegionKind.VALIDATION).handle
    long = bytes(MAX_BULK_RECORD + 1)
    asked = gpu.Upload(region=place, offset=0, length=len(long), records=1)
    assert world.refused(asked, bulk=[long]) == "bulk-too-large"
    assert world.refused(asked.model_copy(update={"length": MAX_BULK_RECORD}), bulk=[long[1:]]) == "out-of-range"
