"""What the agent shows of a GPU to anybody. Knows no device and no HTTP."""

from __future__ import annotations

from shared.claims import Claim
from shared.errors import NotFound


class GpuView(Claim):
    """Public facts of one GPU.

    `memory_bytes`: what a session may allocate in all. `statement_certificate`: COSE_Sign1 by the device's leaf over this boot's statement
    key, hex; "" and no boot counter where the GPU's firmware has none: such a GPU can be attested, and cannot travel.
    """

    gpu: str
    backend: str
    port: str | None
    switches: int
    boot_counter: int | None
    memory_bytes: int | None
    statement_certificate: str


class GpuList(Claim):
    """All GPUs of this agent."""

    items: list[GpuView]


def not_available(gpu: str, what: str, why: str) -> NotFound:
    """The answer where a GPU lacks a part of the protocol (design 4.2 step 4)."""
    return NotFound(f"GPU {gpu}: {what} is not available: {why}", code="not-available")
