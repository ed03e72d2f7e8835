"""Answers of the GPU to the commands of `shared.wire.gpu`, as deterministic CBOR. Knows no device, no key, no HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from shared.claims.program import HexSha256, HexSha384
from shared.names import RegionKind, RegionPhase
from shared.wire.base import Bytes32, Secret32, Wire, WorkKey

COMPUTE_OUTAGES: Final = frozenset({"compute-killed", "compute-lost", "compute-stuck", "work-interrupted"})
"""Codes of a work or a command that a death among the GPU's compute processes ended, whatever records and program are."""


class Done(Wire):
    is_: Literal["done"] = Field(default="done", alias="is")


class LifeOpened(Wire):
    """`life` counts the orchestrator's lives on this GPU; `boot_counter` the wipes. IV masks (12 bytes) of the LCE0 kernel keys."""

    is_: Literal["life_opened"] = Field(default="life_opened", alias="is")
    life: int
    boot_counter: int
    device: str
    session: str | None
    h2d_iv_mask: bytes = Field(repr=False)
    d2h_iv_mask: bytes = Field(repr=False)


class ProgramLoaded(Wire):
    is_: Literal["program_loaded"] = Field(default="program_loaded", alias="is")
    program: HexSha384
    code: HexSha256
    rebuilt: bool


class RegionInfo(Wire):
    """A region as the orchestrator sees it. Lengths and addresses in bytes."""

    handle: int
    kind: RegionKind
    address: int
    length: int
    phase: RegionPhase


class Configured(Wire):
    is_: Literal["configured"] = Field(default="configured", alias="is")
    regions: list[RegionInfo]


class EpochOpened(Wire):
    """`entropy`: the GPU's share of the draw. `fenced`: what the killed epochs left in their regions.

    `engine`, `channel_counter`: the copy-engine slot of the epoch's grant, known before it is installed; 0 where the epoch is a fence's.
    """

    is_: Literal["epoch_opened"] = Field(default="epoch_opened", alias="is")
    entropy: Secret32
    engine: int = 0
    channel_counter: int = 0
    fenced: list[RegionContent] = Field(default_factory=list)


class RegionContent(Wire):
    """What a holder left in a region: published or not, and if so how much, and its commitment (32 bytes hex).

    `proof`: bytes of the membership proof that came with it. `refusal`: why the GPU ended the grant, where it did.
    """

    region: int
    epoch: int
    phase: RegionPhase
    published: bool
    records: int = 0
    length: int = 0
    proof: int = 0
    commitment: HexSha256 | None = None
    refusal: str | None = None


class GrantInstalled(Wire):
    """Copy-engine slot, channel counter and IV mask (12 bytes) that go with the visit key; the key itself never travels."""

    is_: Literal["grant_installed"] = Field(default="grant_installed", alias="is")
    engine: int
    channel_counter: int
    iv_mask: bytes = Field(repr=False)


class Fetched(Wire):
    """What came of a fetch; the fence tells the whole of it. `refusal`: why the records were not published."""

    is_: Literal["fetched"] = Field(default="fetched", alias="is")
    published: bool
    records: int
    refusal: str | None = None


class Drained(Wire):
    is_: Literal["drained"] = Field(default="drained", alias="is")
    outstanding: int


class Measured(Wire):
    """BLAKE3 digests read back from HBM: code bytes, tensors by `region_digest`, control structures.

    `version`: of the committed state that model and optimiser read back as, byte for byte; 0: of none. `optimiser`: None where it reads
    back so, and nobody asked for its digest yet.
    """

    is_: Literal["measured"] = Field(default="measured", alias="is")
    nonce: Bytes32
    code: HexSha256
    program: HexSha384
    model: HexSha256
    optimiser: HexSha256 | None = None
    version: int = Field(default=0, ge=0)
    control: HexSha256
    life: int
    boot_counter: int
    device: str


class Swept(Wire):
    """`strays`: bytes outside of every region, zeros now. Digests (BLAKE3): committed model and optimiser, held-out records."""

    is_: Literal["swept"] = Field(default="swept", alias="is")
    strays: int
    model: HexSha256
    optimiser: HexSha256
    validation: HexSha256


class WorkState(Wire):
    """`losses`: (global step, mean loss rounded by the manifest's rule) after the asked step; none under the privacy floor.

    `visit`: whose records a tour's training failed on, where it was one visit's.
    """

    is_: Literal["work"] = Field(default="work", alias="is")
    work: WorkKey
    state: Literal["running", "done", "failed"]
    losses: list[tuple[int, float]] = Field(default_factory=list)
    steps_done: int = 0
    loss: float | None = None
    records: int = 0
    seconds: float = 0.0
    finite: bool = True
    update_norm: float | None = None
    code: str | None = None
    detail: str | None = None
    visit: str | None = None


class Committed(Wire):
    """`batches`: how many the accumulator holds, where there is one. `statement`: the device's, signed, over the end of a tour.

    `version`: this state's number, larger than every earlier one's since the GPU was wiped. `optimiser`: None where nobody needs the
    digest after each visit; a checkpoint says it.
    """

    is_: Literal["committed"] = Field(default="committed", alias="is")
    model: HexSha256
    optimiser: HexSha256 | None = None
    version: int = Field(default=0, ge=0)
    step: int
    batches: int = Field(default=0, ge=0)
    statement: bytes | None = None


class Scrubbed(Wire):
    """`digest`: BLAKE3 of the region as read back; the orchestrator compares it with that of `length` zero bytes."""

    is_: Literal["scrubbed"] = Field(default="scrubbed", alias="is")
    region: int
    length: int
    digest: HexSha256


class Statement(Wire):
    """COSE_Sign1 (EdDSA) by the device's statement key over the GPU's own claims of a visit (`shared.claims.receipt`)."""

    is_: Literal["statement"] = Field(default="statement", alias="is")
    statement: bytes


class CheckpointPart(Wire):
    """`total`: bytes of committed model ‖ optimiser; this part covers [offset, offset+length)."""

    is_: Literal["checkpoint_part"] = Field(default="checkpoint_part", alias="is")
    offset: int
    length: int
    total: int
    model: HexSha256
    optimiser: HexSha256
    step: int


class DeviceStatus(Wire):
    is_: Literal["status"] = Field(default="status", alias="is")
    life: int
    boot_counter: int
    session: str | None
    ready: bool
    regions: list[RegionInfo]
    epochs: list[int]
    step: int
    hbm_bytes: int
    hbm_used: int


class Failure(Wire):
    """Why a command was refused. Ends the batch."""

    is_: Literal["failure"] = Field(default="failure", alias="is")
    code: str
    detail: str


Answer = Annotated[
    Done | LifeOpened | ProgramLoaded | Configured | EpochOpened | GrantInstalled | Fetched | Drained | Swept | Measured | WorkState
    | Committed | Scrubbed | Statement | CheckpointPart | DeviceStatus | Failure,
    Field(discriminator="is_"),
]  # fmt: skip

EpochOpened.model_rebuild()
ANSWERS: TypeAdapter[list[Any]] = TypeAdapter(list[Answer])
