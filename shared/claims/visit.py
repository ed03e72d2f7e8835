"""What one visit is: the plan, the grant, the buffer's geometry. Fixed by the orchestrator before any outward act."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from shared.claims import Claim, Grown
from shared.claims.manifest import PartyName
from shared.claims.program import HexSha256
from shared.names import TravelMode

SESSION_PATTERN: Final = r"^s_[0-9a-z]{16}$"
VISIT_PATTERN: Final = r"^v_[0-9a-z]{16}$"
SessionId = Annotated[str, Field(pattern=SESSION_PATTERN)]
VisitId = Annotated[str, Field(pattern=VISIT_PATTERN)]
MAX_CHAINS = 32
MAX_CHUNK_BYTES = 2 * 1024 * 1024  # the driver's largest single encrypted copy (reference h100.md 4.5)


class CursorRange(Claim):
    """Which of the holder's records a visit carries: `count` from position `start` of its endless, wrapping stream.

    Position p is record order(p // n, p % n) of a dataset of n records; the holder's mood has no part in it, so a
    repeated visit carries the same records.
    """

    start: int = Field(ge=0, lt=2**53)
    count: int = Field(ge=1, lt=2**31)
    order: Literal["sequential", "shuffled"] = "sequential"
    seed: int = Field(default=0, ge=0, lt=2**53)


class Shares(Claim):
    """Both sides' X25519 shares (32 bytes, hex) of a visit's key; named by the grant, so that neither can be swapped (attack V25)."""

    holder: HexSha256
    gpu: HexSha256


class Grant(Grown):
    """What a visit key may do; installed in the GPU, shown to the holder (design 2, 4.4 `scoped`).

    `region` is a handle; `address` (bytes) is told in travel mode `paper` alone, where stock firmware knows no handles: elsewhere the
    holder learns nothing of where anything lies. `rights` follow from `mode` (`shared.protocol.travel`). Lengths in bytes.
    `recipient` is SHA-256 of the holder's one-time HPKE key. `expires_at` is seconds since 1970. `dataset_root` is what the holder
    committed to when it approved, over `dataset_records` records: the GPU takes only those of them that `cursor` names.
    """

    later = ("more_chains",)
    session: SessionId
    visit: VisitId
    life: int = Field(ge=1)
    epoch: int = Field(ge=1, lt=2**31)
    holder: PartyName
    port: str
    region: int = Field(ge=1, lt=2**31)
    direction: Literal["h2d"] = "h2d"
    mode: TravelMode = TravelMode.SCOPED
    rights: Literal["w", "rwx"] = "w"
    address: int | None = Field(default=None, ge=0)
    shares: Shares | None = Field(default=None, description="in travel mode `direct`")
    byte_budget: int = Field(
        ge=1, description="for the records, and above their length for the proof that they are the right ones"
    )
    cursor: CursorRange
    dataset_root: HexSha256
    dataset_records: int = Field(ge=1, lt=2**53)
    record_bytes: int = Field(ge=1)
    chunk_bytes: int = Field(ge=1, le=MAX_CHUNK_BYTES)
    recipient: HexSha256
    expires_at: int = Field(ge=0)
    more_chains: int = Field(
        default=0, ge=0, lt=MAX_CHAINS, description="MAC chains of each copy record beyond the first, each independent"
    )

    @property
    def chains(self) -> int:
        """Independent MAC chains of each copy record."""
        return 1 + self.more_chains

    @property
    def records(self) -> int:
        """Number of records the visit carries."""
        return self.cursor.count

    @property
    def proof_budget(self) -> int:
        """The most bytes a membership proof may have."""
        return self.byte_budget - self.length

    @property
    def length(self) -> int:
        """Bytes of record data the visit carries, exactly."""
        return self.records * self.record_bytes

    @property
    def chunks(self) -> int:
        """Number of data chunks; all but the last are `chunk_bytes` long."""
        return -(-self.length // self.chunk_bytes)


class VisitTimers(Claim):
    """The prototype's five timers, seconds on the holder's clock (GPU Travelling, CCS 2025). `grab_gpu` begins when the GPU is at the port,
    where records waited for it there: a holder that seals ahead waits through another's training."""

    grab_gpu: float = Field(ge=0, lt=2**53)
    import_key: float = Field(ge=0, lt=2**53)
    buffer_read: float = Field(ge=0, lt=2**53)
    gpu_write: float = Field(ge=0, lt=2**53)
    export_key: float = Field(ge=0, lt=2**53)
