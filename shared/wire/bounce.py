"""How a holder and the GPU agent of one machine share a bounce buffer. Knows no key: what lies in the buffer are sealed copy records.

On the agent's Unix socket: the holder sends REQUEST (the bytes it wants); the agent answers NAME_BYTES, and with them the descriptor of
memory that cannot shrink, or hangs up. The buffer lives as long as the connection. Records are then sent by place (`Bounced`) to the
port's `bounce` door over HTTP, which also orders memory between the two processes.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

from pydantic import Field

from shared.wire.base import Wire

REQUEST: Final = struct.Struct(">Q")
NAME_BYTES: Final = 16
MAX_BUFFER_BYTES: Final = 256 * 1024 * 1024
MAX_PLACES: Final = 1024


class Bounced(Wire):
    """Copy records that lie in a bounce buffer: (offset, length) of each in bytes, in the order in which they count."""

    buffer: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    places: Annotated[
        list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]],
        Field(min_length=1, max_length=MAX_PLACES),
    ]
