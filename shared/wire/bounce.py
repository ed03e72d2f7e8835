"""How a holder and the GPU agent of one machine share a bounce buffer. Knows no key: what lies in the buffer are sealed copy records.

On the agent's Unix socket: the holder sends REQUEST (the bytes it wants); the agent answers NAME_BYTES, and with them the descriptor of
memory that cannot shrink, or hangs up. The buffer lives as long as the connection. Records are then sent by place: named over HTTP
(`Bounced`) to the port's `bounce` door, or on the connection itself, which is the buffer's doorbell. Either orders memory between the two
processes.

The doorbell: FRAME (a length) ‖ `Rung`, one frame after another without waiting; for each, in the same order, FRAME ‖ the last record's
`CopyAck`. An answer of length 0: not all of them were taken. Why is said over HTTP only, where the same places are then named again;
whatever else was rung in the same turn is not looked at, so that nothing comes before what it follows.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

from pydantic import Field

from shared.wire.base import Wire

REQUEST: Final = struct.Struct(">Q")
FRAME: Final = struct.Struct(">I")
NAME_BYTES: Final = 16
MAX_BUFFER_BYTES: Final = 256 * 1024 * 1024
MAX_PLACES: Final = 1024
MAX_RUNG_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 4096

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


class Rung(Wire):
    """The same on the buffer's own connection: for which GPU and port. `turn`: another one for each time that something was not taken."""

    gpu: Annotated[str, Field(min_length=1, max_length=100)]
    port: Annotated[str, Field(min_length=1, max_length=100)]
    turn: Annotated[int, Field(ge=0)]
    places: Places
