"""A CVM as its own code sees it: configuration first, then facts in order, each once, and a log that fits every quote."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from shared.claims.event_log import RUNTIME, ZERO, Event, EventLog, extended, parse_log, replay
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, Unavailable
from shared.service.configuration import configuration
from shared.service.guest import KEPT, Guest
from shared.wire.visit import Evidence

DATA = bytes(64)


class Machine:
    """Registers as hardware keeps them; `broken` answers are lost after they took effect, `down` ones before."""

    def __init__(self, registers: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        self.values = dict.fromkeys(registers, ZERO)
        self.broken = self.down = 0
        self.calls: list[str] = []

    async def relaunch(self) -> bool:
        return False

    async def registers(self) -> dict[int, bytes]:
        if self.down:
            raise Unavailable("not there")
        return dict(self.values)

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        self.calls.append("extend")
        if self.values[register] == before:
            self.values[register] = extended(before, digest)
        assert self.values[register] == extended(before, digest), "a repeat, or an extension of what is there"
        if self.broken:
            self.broken -= 1
            raise Unavailable("the answer was lost")

    async def quote(self, report_data: bytes) -> Evidence:
        self.calls.append("quote")
        return Evidence(quote=base64.b64encode(b"".join(self.values.values())).decode())

    async def derived_key(self, label: str) -> Secret:
        return Secret(label.encode())

    async def aclose(self) -> None:
        self.calls.append("closed")


BOOT = (
    Event(register=0, type="role", content={"role": "orchestrator"}),
    Event(register=2, type="settings", content={"allow_emulated": True}),
    Event(register=3, type="policy", content={"sha256": "ab"}),
)


def fits(machine: Machine, evidence: Evidence) -> EventLog:
    """The log in this evidence, which must give the registers beside it."""
    log, values = parse_log(base64.b64decode(evidence.event_log)), base64.b64decode(evidence.quote)
    replayed = replay(log)
    assert b"".join(replayed[register] for register in machine.values) == values
    return log


async def test_configuration_is_measured_before_the_first_quote_and_once() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)
    assert not machine.calls
    assert fits(machine, await guest.quote(DATA)).events == BOOT
    assert fits(machine, await guest.quote(DATA)).events == BOOT
    assert machine.calls == ["extend"] * 3 + ["quote"] * 2


async def test_facts_are_recorded_once_and_other_sessions_stay_hidden() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)
    for session in ("s_1", "s_2", "s_1"):
        await guest.record("session", {"session": session})
    assert machine.calls.count("extend") == 5
    log = fits(machine, await guest.quote(DATA, about="s_2"))
    assert [event.content.get("session") for event in log.events if event.type == "session"] == ["s_2"]
    assert b"s_1" not in log.to_bytes()
    nobody = fits(machine, await guest.quote(DATA))
    assert nobody.events == BOOT


async def test_a_lost_answer_or_an_absent_enclave_loses_and_repeats_nothing() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)
    machine.down = 1
    with pytest.raises(Unavailable):
        await guest.quote(DATA)
    machine.down, machine.broken = 0, 1
    with pytest.raises(Unavailable):
        await guest.record("session", {"session": "s_1"})
    machine.broken = 1
    with pytest.raises(Unavailable):
        await guest.record("session", {"session": "s_2"})
    log = fits(machine, await guest.quote(DATA, about="s_1"))
    assert [event.content.get("session") for event in log.events][3:] == ["s_1"]
    assert len(log.entries) == 5


async def test_many_at_once_keep_quotes_and_log_together() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)

    async def act(number: int) -> None:
        await guest.record("session", {"session": f"s_{number}"})
        log = fits(machine, await guest.quote(DATA, about=f"s_{number}"))
        assert log.events[-1].content["session"] == f"s_{number}"

    await asyncio.gather(*(act(number) for number in range(20)))


async def test_a_long_life_keeps_a_short_log() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)
    for number in range(KEPT + 50):
        await guest.record("session", {"session": f"s_{number}"})
    log = fits(machine, await guest.quote(DATA, about=f"s_{KEPT + 49}"))
    assert (len(log.entries), log.events[-1].content) == (KEPT, {"session": f"s_{KEPT + 49}"})
    await guest.record("session", {"session": "s_0"})
    assert fits(machine, await guest.quote(DATA, about="s_0")).events[-1].content == {"session": "s_0"}


async def test_what_the_backend_cannot_extend_goes_to_the_runtime_register_or_nowhere() -> None:
    runtime_only = Machine((RUNTIME,))
    guest = Guest(runtime_only, BOOT)
    log = parse_log(base64.b64decode((await guest.quote(DATA)).event_log))
    assert {event.register_index for event in log.events} == {RUNTIME}
    assert replay(log)[RUNTIME] == runtime_only.values[RUNTIME]
    none = Machine(())
    assert (await Guest(none, BOOT).quote(DATA)).event_log == ""
    assert none.calls == ["quote"]


async def test_a_service_that_starts_again_in_a_running_machine_begins_its_log_there() -> None:
    machine = Machine((RUNTIME,))
    await Guest(machine, BOOT).quote(DATA)
    before = machine.values[RUNTIME]
    log = parse_log(base64.b64decode((await Guest(machine, BOOT).quote(DATA)).event_log))
    assert log.start == {"3": before.hex()}
    assert replay(log)[RUNTIME] == machine.values[RUNTIME]


async def test_keys_and_closing_are_passed_on() -> None:
    machine = Machine()
    guest = Guest(machine, BOOT)
    assert (await guest.derived_key("label")).reveal() == b"label"
    await guest.aclose()
    assert machine.calls == ["closed"], "a sealing key needs nothing measured but the code"


# ---------------------------------------------------------------------------------- configuration


def measured(folder: Path | None, **changes: object) -> tuple[Event, ...]:
    settings = {"allow_emulated": True, "approve": "policy", "data_dir": "/secret", "port": 1, **changes}
    return configuration("data_holder", backend="emulated", trust_dir=folder, settings=settings)


def test_configuration_covers_what_a_peer_relies_on_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cpu-roots.pem").write_text("roots")
    reference = '{"gpu": {"a": 1}, "cvms": {"orchestrator": {"mr_td": "aa", "rtmr0": "RTMR"}}}'
    (tmp_path / "reference.json").write_text(reference.replace("RTMR", "11"))
    role, trust, settings = first = measured(tmp_path)
    assert (role.content, settings.content) == (
        {"role": "data_holder", "backend": "emulated"}, {"allow_emulated": True, "approve": "policy"},
    )  # fmt: skip
    assert set(trust.content) == {"cpu_roots", "reference"}
    assert measured(tmp_path, data_dir="/elsewhere", port=2) == first
    (tmp_path / "reference.json").write_text(reference.replace("RTMR", "22"))
    (tmp_path / "collateral").mkdir()
    (tmp_path / "collateral" / "emulated.json").write_text("{}")
    assert measured(tmp_path) == first, "neither its own registers nor renewed collateral"
    seen = [first, measured(tmp_path, allow_emulated=False), measured(tmp_path, approve="manual"), measured(None)]
    (tmp_path / "reference.json").write_text(reference.replace('"aa"', '"bb"'))
    seen.append(measured(tmp_path))
    (tmp_path / "reference.json").write_text(reference.replace('{"a": 1}', '{"a": 2}'))
    seen.append(measured(tmp_path))
    (tmp_path / "gpu-roots.pem").write_text("more roots")
    seen.append(measured(tmp_path))
    assert len(set(map(repr, seen))) == len(seen)


def test_a_trust_folder_that_cannot_be_read_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "cpu-roots.pem").mkdir()
    with pytest.raises(ConfigurationError) as caught:
        measured(tmp_path)
    assert caught.value.code == "trust-file"
