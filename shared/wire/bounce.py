"""How a holder and the GPU agent of one machine share a bounce buffer. Knows no key: what lies in the buffer are sealed copy records.

On the agent's Unix socket: the holder sends REQUEST (the bytes it wants); the agent answers NAME_BYTES, and with them the descriptor of
memory that cannot shrink, or hangs up. The buffer lives as long as the connection. Records are then sent by place: named over HTTP
(`Bounced`) to the port's `bounce` door, or on the connection itself, which is the buffer's doorbell. Either orders memory between the two
processes.

The doorbell: FRAME (a length) ‖ ring, one frame after another without waiting; for each, in the same order, FRAME ‖ `BellAck`. An answer of
length 0: not all of them were taken. Why is said over HTTP only, where the same places are then named again; whatever else was rung in the
same turn is not looked at, so that nothing comes before what it follows. Frames are fixed fields and not CBOR: there is one for each
record of a visit, and to pack and judge a model at both ends took as long as a tenth of the cipher.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from shared.errors import BadRequest
from shared.wire.base import Wire

REQUEST: Final = struct.Struct(">Q")
FRAME: Final = struct.Struct(">I")
NAME_BYTES: Final = 16
MAX_BUFFER_BYTES: Final = 256 * 1024 * 1024
MAX_PLACES: Final = 1024
MAX_NAME: Final = 255
MAX_RUNG_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 64

Places = Annotated[
    list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]],
    Field(min_length=1, max_length=MAX_PLACES),
]
"""(offset, length) of each copy record in bytes, in the order in which they count."""


class Bounced(Wire):
    """Copy records that lie in a bounce buffer. `number`: grows with every request over the buffer; one that a later one overtook may name
    places that hold other records by now, and is refused."""

    buffer: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    number: Annotated[int, Field(ge=0, lt=2**53)]
    places: Places


@dataclass(slots=True)
class Rung:
    """The same on the buffer's own connection: for which GPU and port. `turn`: another one for each time that something was not taken.
    `wait_ms`: how long the GPU may take to appear at the port before that is not taken."""

    gpu: str
    port: str
    turn: int
    wait_ms: int
    places: Sequence[tuple[int, int]]


@dataclass(slots=True)
class BellAck:
    """The last record's acknowledgement, as `CopyAck`. `waited_us`: how long the ring waited for the GPU to appear."""

    index: int
    received: int
    published: bool
    waited_us: int = 0


_TURN: Final = struct.Struct(">IH")
"""Turn, wait_ms; `_NAMES` follow, then a `_PLACE` for each record."""
_NAMES: Final = struct.Struct(">BB")
"""Lengths of the GPU's and the port's name, which follow in ASCII."""
_FIRST: Final = _TURN.size + _NAMES.size
_PLACE: Final = struct.Struct(">QI")
_ACK: Final = struct.Struct(">IQBI")
"""Index, received, published (0 or 1), waited_us."""
_LONGEST_WAIT_US: Final = 2**32 - 1


def pack_names(gpu: str, port: str) -> bytes:
    """Where a visit's rings go. Raises: BadRequest: a name is no ASCII, or longer than 255."""
    if not (gpu.isascii() and port.isascii() and max(len(gpu), len(port)) <= MAX_NAME):
        raise BadRequest("a GPU or a port has a name that no doorbell takes", code="invalid-port")
    return _NAMES.pack(len(gpu), len(port)) + gpu.encode("ascii") + port.encode("ascii")


def pack_rung(turn: int, wait_ms: int, names: bytes, places: Sequence[tuple[int, int]]) -> bytes:
    """A ring without its FRAME. `names`: of `pack_names`. Raises: struct.error: a number is out of range."""
    return _TURN.pack(turn, wait_ms) + names + b"".join([_PLACE.pack(*place) for place in places])


def unpack_rung(frame: bytes) -> Rung:
    """Inverse of `pack_rung`. Raises: BadRequest: it is no ring, names nothing, or too many or empty places."""
    if len(frame) < _FIRST:
        raise BadRequest("a ring is cut short")
    (turn, wait_ms), (gpu, port) = _TURN.unpack_from(frame), _NAMES.unpack_from(frame, _TURN.size)
    names, at = _FIRST + gpu, _FIRST + gpu + port
    if not gpu or not port or len(frame) <= at or (len(frame) - at) % _PLACE.size:
        raise BadRequest("a ring names no GPU, no port, or no whole places")
    places = list(_PLACE.iter_unpack(memoryview(frame)[at:]))
    if len(places) > MAX_PLACES or not all(length for _, length in places):
        raise BadRequest("a ring names too many places, or an empty one")
    try:
        return Rung(frame[_FIRST:names].decode("ascii"), frame[names:at].decode("ascii"), turn, wait_ms, places)
    except UnicodeDecodeError:
        raise BadRequest("a ring's names are no ASCII") from None


def pack_ack(ack: BellAck) -> bytes:
    """An answer without its FRAME."""
    return _ACK.pack(ack.index, ack.received, ack.published, min(ack.waited_us, _LONGEST_WAIT_US))


def unpack_ack(frame: bytes) -> BellAck:
    """Inverse of `pack_ack`. Raises: BadRequest."""
    if len(frame) != _ACK.size:
        raise BadRequest("an acknowledgement has another length")
    index, received, published, waited_us = _ACK.unpack(frame)
    if published > 1:
        raise BadRequest("an acknowledgement says neither that it was published nor that it was not")
    return BellAck(index, received, bool(published), waited_us)
