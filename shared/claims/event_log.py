"""What a confidential VM measured into its registers, event by event, so that a verifier can replay it. Knows no quote and no policy.

    digest   = SHA-384("gput/event" 00 ‖ canonical JSON {register, type, content})
    register = SHA-384(register ‖ digest)                    48 zero bytes at launch

A log may hide events by giving their digest only, and may begin at a later value of a register: whoever knows the register's final value
learns from either that something was measured, and can be told nothing false. (Another session's events are not this peer's to read.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from shared.canonical import json_bytes, json_value, sha384
from shared.claims import Claim
from shared.claims.program import HexSha384
from shared.claims.shape import first_fault
from shared.errors import BadRequest

REGISTERS = 4
RUNTIME = 3
ZERO = bytes(48)
MAX_LOG_BYTES = 512 * 1024
MAX_EVENTS = 1024
Register = Annotated[int, Field(ge=0, lt=REGISTERS)]
Content = dict[
    Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")],
    Annotated[str, Field(max_length=4096)] | bool | int | tuple[Annotated[str, Field(max_length=256)], ...] | None,
]


class Event(Claim):
    """One measured fact. `content` is public: whoever gets evidence reads it."""

    register_index: Register = Field(alias="register")
    type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    content: Content = Field(max_length=64)

    @property
    def digest(self) -> bytes:
        """What the register is extended by, 48 bytes."""
        return sha384(b"gput/event\x00" + json_bytes(self.model_dump(mode="json", by_alias=True)))


class Entry(Claim):
    """One line of a log: the event itself, or only its digest."""

    event: Event | None = None
    register_index: Register | None = Field(default=None, alias="register")
    digest: HexSha384 | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        hidden = (self.register_index is not None, self.digest is not None)
        if hidden != ((True, True) if self.event is None else (False, False)):
            raise ValueError("an entry is an event, or a register and a digest")
        return self

    def step(self) -> tuple[int, bytes]:
        """The register, and what it is extended by."""
        if self.event is not None:
            return self.event.register_index, self.event.digest
        return self.register_index or 0, bytes.fromhex(self.digest or "")


class EventLog(Claim):
    """A log as it travels. `start`: a register's value before the first entry, where that is not zero (register number as text)."""

    profile: Literal["gput/event-log/1"] = "gput/event-log/1"
    start: dict[Annotated[str, Field(pattern=r"^[0-3]$")], HexSha384] = Field(default={}, max_length=REGISTERS)
    entries: tuple[Entry, ...] = Field(max_length=MAX_EVENTS)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that it shows, in order."""
        return tuple(entry.event for entry in self.entries if entry.event is not None)

    def touched(self) -> frozenset[int]:
        """Registers that it says something about."""
        return frozenset(entry.step()[0] for entry in self.entries) | {int(register) for register in self.start}

    def to_bytes(self) -> bytes:
        """Canonical JSON, without what is absent."""
        return json_bytes(self.model_dump(mode="json", by_alias=True, exclude_none=True))


def parse_log(data: bytes) -> EventLog:
    """Strictly. Raises: BadRequest `malformed-event-log`."""
    try:
        return EventLog.model_validate(json_value(data, MAX_LOG_BYTES))
    except ValidationError as error:
        raise BadRequest(f"event log: {first_fault(error)}", code="malformed-event-log") from None
    except BadRequest as error:
        raise BadRequest(f"event log: {error.detail}", code="malformed-event-log") from None


def extended(register: bytes, digest: bytes) -> bytes:
    """The register's next value. Both 48 bytes."""
    return sha384(register + digest)


def replay(log: EventLog, before: Mapping[int, bytes] | None = None) -> tuple[bytes, bytes, bytes, bytes]:
    """The four registers after this log. `before`: their values when it began, zero where not given; its own `start` goes first."""
    registers = [(before or {}).get(index, ZERO) for index in range(REGISTERS)]
    for name, value in log.start.items():
        registers[int(name)] = bytes.fromhex(value)
    for entry in log.entries:
        index, digest = entry.step()
        registers[index] = extended(registers[index], digest)
    return registers[0], registers[1], registers[2], registers[3]


def replay_events(events: Iterable[Event]) -> tuple[bytes, bytes, bytes, bytes]:
    """The four registers of a VM that measured these and nothing else."""
    return replay(EventLog(entries=tuple(Entry(event=event) for event in events)))
