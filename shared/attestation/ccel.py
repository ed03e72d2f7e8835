"""The boot event log of a TD (ACPI table CCEL): parse and replay. Knows no quote and no policy.

Source: TCG PC Client Platform Firmware Profile 1.05, section 10 (crypto-agile log); UEFI 2.10, section 38 (confidential computing): the
measurement register index n names RTMR n-1, and 0 names MRTD. Firmware hands out a fixed area, filled up with FF or 00 after the log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.errors import BadRequest

SPEC_ID = b"Spec ID Event03\0"
NO_ACTION = 0x03
SHA384, SHA384_BYTES = 0x000C, 48
SIZES = {0x0004: 20, 0x000B: 32, SHA384: SHA384_BYTES, 0x000D: 64, 0x0012: 32}  # TCG algorithm registry
MAX_LOG_BYTES = 4 * 1024 * 1024
MAX_EVENTS = 16_384
MAX_DIGESTS = 8


@dataclass(frozen=True)
class BootEvent:
    """One event: register index as in the log (0 MRTD, n RTMR n-1), type, SHA-384 digest, and the described data."""

    index: int
    kind: int
    digest: bytes
    data: bytes


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def take(self, count: int) -> bytes:
        piece = self._data[self.at : self.at + count]
        if len(piece) != count:
            raise _malformed(f"it ends within an event at byte {self.at}")
        self.at += count
        return piece

    def numbers(self, layout: str) -> tuple[int, ...]:
        numbers: tuple[int, ...] = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return numbers

    def filling(self) -> bool:
        """Whether only the filling after the log is left."""
        rest = self._data[self.at : self.at + 8]
        return len(rest) < 8 or rest in (b"\xff" * 8, b"\0" * 8)


def parse_ccel(data: bytes) -> tuple[BootEvent, ...]:
    """Every event after the log's own header. Raises: BadRequest `malformed-boot-log`."""
    if len(data) > MAX_LOG_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    reader = _Reader(data)
    _index, kind = reader.numbers("<II")
    reader.take(20)
    header = reader.take(min(reader.numbers("<I")[0], MAX_LOG_BYTES))
    if kind != NO_ACTION or not header.startswith(SPEC_ID):
        raise _malformed("it does not begin with the header of a crypto-agile log")
    events: list[BootEvent] = []
    while not reader.filling():
        if len(events) == MAX_EVENTS:
            raise _malformed(f"it has more than {MAX_EVENTS} events")
        events.append(_event(reader))
    return tuple(events)


def _event(reader: _Reader) -> BootEvent:
    index, kind, count = reader.numbers("<III")
    if index > REGISTERS or not 1 <= count <= MAX_DIGESTS:
        raise _malformed(f"event at byte {reader.at}: register index {index}, {count} digests")
    digests: dict[int, bytes] = {}
    for _ in range(count):
        (algorithm,) = reader.numbers("<H")
        if algorithm not in SIZES:
            raise _malformed(f"event at byte {reader.at}: digest algorithm {algorithm:#06x}")
        digests[algorithm] = reader.take(SIZES[algorithm])
    if SHA384 not in digests:
        raise _malformed(f"event at byte {reader.at} has no SHA-384 digest")
    (size,) = reader.numbers("<I")
    return BootEvent(index, kind, digests[SHA384], reader.take(size))


def replay_ccel(events: tuple[BootEvent, ...]) -> dict[int, bytes]:
    """RTMR number -> its value after these events, for the registers that occur. Raises: BadRequest `malformed-boot-log`."""
    registers: dict[int, bytes] = {}
    for event in events:
        if event.kind == NO_ACTION:
            continue  # informs; is not measured
        if event.index == 0:
            raise _malformed("it extends MRTD, which ends with the launch")
        register = event.index - 1
        registers[register] = extended(registers.get(register, ZERO), event.digest)
    return registers


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"boot event log: {why}", code="malformed-boot-log")
