"""Stock firmware's commands on a holder's port, as a visit key of travel mode `paper` gives them. Knows no key, no memory, no HTTP.

An honest holder sends none of them: it writes copy records into its buffer, as in every mode. They are what a channel key to a stock GPU
opens all the same, and what that mode's defences must stand: the whole of memory to read and to write, and launches of any code in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from shared.claims.training import TrainingOptions
from shared.wire.base import Wire

MAX_STOCK_BYTES = 1024 * 1024
"""Bytes that one command moves at most."""
MAX_STOCK_FRAME = MAX_STOCK_BYTES + 64 * 1024
Address = Annotated[int, Field(ge=0, lt=2**63)]


class StockFrame(Wire):
    """One command or its answer. `ct` = AES-256-GCM under a key made from the visit key, counter `n` (from 1, per direction).

    AAD = CBOR["gput/stock", session, visit, holder, epoch, n, direction]. Another `n` than last + 1 is refused.
    """

    epoch: int = Field(ge=1, lt=2**31)
    n: int = Field(ge=1)
    ct: Annotated[bytes, Field(max_length=MAX_STOCK_FRAME)]


class Span(Wire):
    """Bytes of GPU memory by their address."""

    address: Address
    length: int = Field(ge=0, lt=2**40)


class WriteMemory(Wire):
    """Write anywhere (H2D)."""

    op: Literal["write"] = "write"
    address: Address
    data: Annotated[bytes, Field(min_length=1, max_length=MAX_STOCK_BYTES)]


class ReadMemory(Wire):
    """Read anywhere (D2H); the bytes come in the answer's `data`."""

    op: Literal["read"] = "read"
    address: Address
    length: int = Field(ge=1, le=MAX_STOCK_BYTES)


class CopyMemory(Wire):
    """Copy inside the GPU."""

    op: Literal["copy"] = "copy"
    target: Address
    source: Address
    length: int = Field(ge=1, le=MAX_STOCK_BYTES)


class LaunchProgram(Wire):
    """Start what lies at `code` (a program archive) over whatever memory is named; nothing is measured. The answer does not wait for it."""

    op: Literal["launch"] = "launch"
    kind: Literal["train", "evaluate"]
    code: Span
    model: Span
    gradients: Span
    optimiser: Span
    committed: Span
    data: Span
    records: int = Field(ge=1, lt=2**31)
    first_step: int = Field(default=0, ge=0, lt=2**53)
    steps: int = Field(ge=0, lt=2**31)
    total_steps: int = Field(ge=1, lt=2**53)
    options: TrainingOptions


Stock = Annotated[WriteMemory | ReadMemory | CopyMemory | LaunchProgram, Field(discriminator="op")]
STOCK: TypeAdapter[list[Any]] = TypeAdapter(list[Stock])


class StockAnswer(Wire):
    """What came of a command: bytes read, or why it failed."""

    is_: Literal["stock"] = Field(default="stock", alias="is")
    data: bytes = b""
    code: str | None = None
    detail: str | None = None
