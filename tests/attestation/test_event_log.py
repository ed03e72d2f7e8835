"""The event log: what a VM measured can be replayed, hidden in part, and changed in nothing."""

from __future__ import annotations

import base64
import struct

import pytest
from pydantic import ValidationError

from shared.attestation.ccel import NO_ACTION, SPEC_ID, parse_ccel, replay_ccel
from shared.attestation.cpu_verifier import verify_cpu_evidence
from shared.canonical import json_bytes, sha384
from shared.claims.event_log import Entry, Event, EventLog, extended, parse_log, replay, replay_events
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.cpu_world import AT, Machine, evidence

MACHINE = Machine("events")
DATA = bytes(64)
ZERO = bytes(48)
EVENTS = (
    Event(register=0, type="role", content={"role": "orchestrator"}),
    Event(register=3, type="start", content={}),
    Event(register=3, type="session", content={"session": "s_1", "manifest": "ab" * 32, "flag": True, "n": 1}),
)


def log(*events: Event) -> EventLog:
    return EventLog(entries=tuple(Entry(event=event) for event in events))


def verdict(sent: EventLog | None, *measured: Event) -> str:
    """The code of the refusal, "" when accepted."""
    quote = MACHINE.raw(DATA, rtmrs=replay_events(measured))
    trust = MACHINE.trust()
    try:
        cvm = verify_cpu_evidence(
            evidence(quote, sent), report_data=DATA, role="orchestrator", roots=trust.roots, reference=trust.reference,
            policy=trust.policy, at=AT, collateral=trust.collateral,
        )  # fmt: skip
    except VerificationFailed as error:
        return error.code
    assert cvm.events == (sent.events if sent is not None else ())
    return ""


def test_digest_and_register_are_the_documented_hashes() -> None:
    event = EVENTS[0]
    document = json_bytes({"register": 0, "type": "role", "content": {"role": "orchestrator"}})
    assert event.digest == sha384(b"gput/event\0" + document)
    assert extended(ZERO, event.digest) == sha384(ZERO + event.digest)
    assert replay_events(EVENTS) == (
        extended(ZERO, EVENTS[0].digest), ZERO, ZERO, extended(extended(ZERO, EVENTS[1].digest), EVENTS[2].digest),
    )  # fmt: skip


def test_a_log_travels_as_it_is() -> None:
    sent = EventLog(start={"3": "11" * 48}, entries=(Entry(event=EVENTS[0]), Entry(register=3, digest="22" * 48)))
    assert parse_log(sent.to_bytes()) == sent
    assert sent.events == (EVENTS[0],)
    assert replay(sent)[3] == extended(b"\x11" * 48, b"\x22" * 48)
    assert sent.touched() == {0, 3}


def test_the_verifier_replays_what_was_measured_and_nothing_else() -> None:
    first, start, session = EVENTS
    assert verdict(log(*EVENTS), *EVENTS) == ""
    other = Event(register=3, type="session", content={"session": "s_2"})
    for wrong in (
        log(first, start), log(first, session, start), log(first, start, session, session), log(first, start, other),
        log(start, session, first, first), log(), EventLog(start={"3": "11" * 48}, entries=()),
    ):  # fmt: skip
        assert verdict(wrong, *EVENTS) == "event-log"


def test_hidden_events_and_a_later_start_tell_nothing_false() -> None:
    first, start, session = EVENTS
    hidden = Entry(register=3, digest=start.digest.hex())
    shown = (Entry(event=first), hidden, Entry(event=session))
    assert verdict(EventLog(entries=shown), *EVENTS) == ""
    later = {"3": extended(ZERO, start.digest).hex()}
    assert verdict(EventLog(start=later, entries=(Entry(event=first), Entry(event=session))), *EVENTS) == ""
    assert verdict(EventLog(start=later, entries=shown), *EVENTS) == "event-log"
    assert verdict(EventLog(start=later, entries=(Entry(event=session),)), *EVENTS) == "", "RTMR0 is for the profile"


def test_without_a_log_only_a_clean_runtime_register_speaks_for_itself() -> None:
    assert verdict(None, EVENTS[0]) == ""
    assert verdict(log(), EVENTS[0]) == ""
    assert verdict(log(), *EVENTS) == "event-log"


@pytest.mark.parametrize("bad", [
    b"", b"[]", b"{}", b"\xff", b'{"entries":[{}]}', b'{"entries":[{"register":3}]}', b'{"entries":[{"digest":"00"}]}',
    b'{"entries":[],"start":{"4":"' + b"00" * 48 + b'"}}', b'{"entries":[],"profile":"gput/event-log/2"}',
    b'{"entries":[{"event":{"register":4,"type":"a","content":{}}}]}', b'{"entries":[{"event":{"register":0,"type":"A","content":{}}}]}',
    b'{"entries":[{"event":{"register":0,"type":"a","content":{"k":{"deep":1}}}}]}', b'{"entries":[],"entries":[]}',
    b'{"entries":[' + b",".join([b'{"register":3,"digest":"' + b"00" * 48 + b'"}'] * 9000) + b"]}", b" " * 2_000_000,
])  # fmt: skip
def test_other_forms_are_no_log(bad: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_log(bad)
    assert caught.value.code == "malformed-event-log"


def test_an_entry_is_one_thing_or_the_other() -> None:
    for wrong in ({}, {"register": 3}, {"digest": "00" * 48}, {"event": EVENTS[0], "register": 3, "digest": "00" * 48}):
        with pytest.raises(ValidationError):
            Entry(**wrong)


# ----------------------------------------------------------------------------- the boot event log


def ccel(*events: tuple[int, int, bytes], filling: bytes = b"\xff" * 64) -> bytes:
    """A crypto-agile log: (register index, type, digest) each, with one byte of described data."""
    header = struct.pack("<II20sI", 1, NO_ACTION, bytes(20), len(SPEC_ID) + 8) + SPEC_ID + bytes(8)
    packed = (struct.pack("<IIIH48sI", index, kind, 1, 0xC, digest, 1) + b"d" for index, kind, digest in events)
    return header + b"".join(packed) + filling


def test_a_boot_log_gives_the_registers_it_names() -> None:
    a, b = sha384(b"a"), sha384(b"b")
    for filling in (b"\xff" * 64, bytes(64), b""):
        events = parse_ccel(ccel((1, 8, a), (2, 8, b), (1, 9, b), (3, NO_ACTION, a), filling=filling))
        assert [event.index for event in events] == [1, 2, 1, 3]
        assert replay_ccel(events) == {0: extended(extended(ZERO, a), b), 1: extended(ZERO, b)}


def test_boot_and_runtime_log_are_one_history() -> None:
    booted = extended(ZERO, sha384(b"firmware"))
    quote = MACHINE.raw(DATA, rtmrs=(booted, ZERO, ZERO, replay_events(EVENTS[1:])[3]))
    trust = MACHINE.trust()
    for boot, code in (
        (ccel((1, 8, sha384(b"firmware"))), ""),
        (ccel((1, 8, sha384(b"other"))), "event-log"),
        (b"x", "malformed-boot-log"),
    ):
        sent = evidence(quote, log(*EVENTS[1:])).model_copy(update={"boot_log": base64.b64encode(boot).decode()})
        try:
            verify_cpu_evidence(
                sent, report_data=DATA, role="orchestrator", roots=trust.roots, reference=trust.reference,
                policy=trust.policy, at=AT, collateral=trust.collateral,
            )  # fmt: skip
            found = ""
        except VerificationFailed as error:
            found = error.code
        assert found == code


@pytest.mark.parametrize("bad", [
    b"", bytes(10), ccel()[:40], ccel((1, 8, bytes(48)))[:90], ccel((5, 8, bytes(48))), ccel((0, 8, bytes(48))),
    ccel().replace(SPEC_ID, b"Spec ID Event02\0"), b"\0" * 64,
])  # fmt: skip
def test_other_forms_are_no_boot_log(bad: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        replay_ccel(parse_ccel(bad))
    assert caught.value.code == "malformed-boot-log"
