"""Commands of the orchestrator's channel to the GPU and their answers, as deterministic CBOR. Knows no device, no key, no HTTP.

A *batch* is a list of commands executed in order; the first that fails ends the batch, nothing after it runs, and what ran
before it stays. Frame: see `CommandFrame`. Every act that may be repeated after a restart names its `work` (idempotency
key): the GPU answers a repeated work from its ledger and never does it twice within a life of the model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from shared.claims.manifest import PartyName
from shared.claims.privacy import Privacy
from shared.claims.program import HexSha256
from shared.claims.training import TrainingOptions
from shared.claims.visit import Grant, SessionId, VisitId
from shared.names import TravelMode
from shared.wire.base import Bytes32, Secret32, Wire, WorkKey
from shared.wire.gpu_tours import EndTour as EndTour  # commands like those below
from shared.wire.gpu_tours import TourPart as TourPart
from shared.wire.gpu_tours import TrainTour as TrainTour

MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_BULK_RECORD = 2 * 1024 * 1024  # plaintext bytes of one bulk record


class CommandFrame(Wire):
    """One batch or its answer on a port. `ct` = AES-256-GCM under `cpu_gsp_locked_rpc` / `gsp_cpu_locked_rpc` of this life, message
    counter `n` (starts at 1), AAD = CBOR["gput/rpc", life, n, direction, SHA-256 of each bulk record's bytes].

    `bulk`: AES-256-GCM records (ciphertext ‖ tag, at most 2 MiB each) under `Lce00_h2d_kernel` / `Lce00_d2h_kernel`, counter IVs,
    AAD = CBOR["gput/bulk", life, n, index, total]; they belong to the batch's upload, restore, checkpoint and export commands, in order.
    A byte-identical repeat of the last frame is answered with the same bytes; any other `n` than last + 1 is refused.
    """

    life: int = Field(ge=1)
    n: int = Field(ge=1)
    ct: bytes
    bulk: list[bytes] = Field(default_factory=list, max_length=64)


class OpenLife(Wire):
    """First command of every life. Answer: LifeOpened."""

    op: Literal["open_life"] = "open_life"


class InitSession(Wire):
    """Bind the wiped GPU to one session. Answer: Done."""

    op: Literal["init_session"] = "init_session"
    session: SessionId
    manifest: HexSha256


class UploadProgram(Wire):
    """Write the archive (from `bulk`, `records` of them) into the code region, allocating it on first use. Answer: ProgramLoaded."""

    op: Literal["upload_program"] = "upload_program"
    length: int = Field(ge=1)
    records: int = Field(ge=1)


class Configure(Wire):
    """Plan and allocate every region at random page-aligned addresses. Answer: Configured. Raises gpu-out-of-memory."""

    op: Literal["configure"] = "configure"
    options: TrainingOptions
    total_steps: int = Field(ge=1)
    buffer_bytes: int = Field(ge=4096)
    buffers: int = Field(default=1, ge=1, le=256)
    validation_bytes: int = Field(default=0, ge=0)
    loss_decimals: int = Field(ge=0, le=6)
    privacy_floor: int = Field(ge=1)
    travel_mode: TravelMode = TravelMode.SCOPED
    privacy: Privacy | None = None
    accumulate: Literal["tour"] | None = Field(
        default=None, description="trainings add gradients up; `end_tour` alone steps, and `total_steps` counts tours"
    )
    collect: Literal["visit", "tour"] = Field(
        default="visit", description="`tour`: nothing but `train_tour` trains, on all of a tour's visits at once"
    )


class Upload(Wire):
    """Write bulk bytes into a region the orchestrator owns (model, validation). Answer: Done."""

    op: Literal["upload"] = "upload"
    region: int
    offset: int = Field(ge=0)
    length: int = Field(ge=1)
    records: int = Field(ge=1)


class InitModel(Wire):
    """Make the initial model: `seed` by the program's rules, `uploaded` = what lies in the model region. Commits it. Answer: Committed."""

    op: Literal["init_model"] = "init_model"
    source: Literal["seed", "uploaded"]


class SetReady(Wire):
    """Open the GPU for work, as nvmlSystemSetConfComputeGpusReadyState. Answer: Done."""

    op: Literal["set_ready"] = "set_ready"


class OpenEpoch(Wire):
    """Draw a new epoch: VS_e ‖ RK' = HKDF(RK, CBOR["draw", e, entropy, GPU entropy]); first kill the epochs in `kills` (a fence).

    A fence's own epoch is never granted: its secret is dropped at once. Answer: EpochOpened.
    """

    op: Literal["open_epoch"] = "open_epoch"
    epoch: int = Field(ge=1, lt=2**31)
    entropy: Secret32
    kills: list[int] = Field(default_factory=list, max_length=1024)


class DrawShare(Wire):
    """Draw the GPU's X25519 share of an epoch's traffic key, for one holder (travel mode `direct`). Answer: Statement, over it."""

    op: Literal["draw_share"] = "draw_share"
    epoch: int = Field(ge=1, lt=2**31)
    holder: PartyName


class Fetch(Wire):
    """Fetch a visit's records from staging, decrypt, check and publish them, all or nothing. Once per grant. Answer: Fetched."""

    op: Literal["fetch"] = "fetch"
    epoch: int = Field(ge=1, lt=2**31)


class InstallGrant(Wire):
    """Let the epoch's visit key write into a clean region. Refused without the region's scrub proof. Answer: GrantInstalled."""

    op: Literal["grant"] = "grant"
    grant: Grant


class Drain(Wire):
    """Say how many grants of killed epochs are still there: none, for a fence ends them and every copy. Answer: Drained."""

    op: Literal["drain"] = "drain"


class Sweep(Wire):
    """Destroy whatever lies in memory and is not the session's, and read back what `measure` does not. Answer: Swept.

    Due once at set-up and after each visit whose key commanded the whole GPU: nothing is granted, trained or exported before.
    """

    op: Literal["sweep"] = "sweep"


class Measure(Wire):
    """Read back digests of code, model, optimiser and control structures. Answer: Measured."""

    op: Literal["measure"] = "measure"
    nonce: Bytes32


class Train(Wire):
    """Start training on a fenced, published region. Answer: WorkState (`running` or, repeated, what became of it)."""

    op: Literal["train"] = "train"
    work: WorkKey
    visit: VisitId
    region: int
    records: int = Field(ge=1)
    first_step: int = Field(ge=0)
    steps: int = Field(ge=1)


class Evaluate(Wire):
    """Start an evaluation over the validation region, or over the published dataset region of a visit. Answer: WorkState."""

    op: Literal["evaluate"] = "evaluate"
    work: WorkKey
    region: int
    records: int = Field(ge=1)


class Poll(Wire):
    """Ask for a work's state; waits up to `wait_ms` for its end, or for news of steps after the first `after`. Of these the GPU gathers
    some before it tells. Answer: WorkState."""

    op: Literal["poll"] = "poll"
    work: WorkKey
    after: int = Field(default=0, ge=0)
    wait_ms: int = Field(default=0, ge=0, le=20_000)


class Commit(Wire):
    """Make model and optimiser state the last committed ones. Repeating a committed work answers as before. Answer: Committed."""

    op: Literal["commit"] = "commit"
    work: WorkKey


class RollBack(Wire):
    """Put model and optimiser state back to the last committed ones, bit for bit. Answer: Committed."""

    op: Literal["roll_back"] = "roll_back"


class Scrub(Wire):
    """Destroy everything derived from a region's records: region, gradients, staging, compute process; read back. Answer: Scrubbed."""

    op: Literal["scrub"] = "scrub"
    region: int


class CloseVisit(Wire):
    """Sign what the GPU knows of a scrubbed visit (device statement key). Repeatable. Answer: Statement."""

    op: Literal["close_visit"] = "close_visit"
    visit: VisitId


class Checkpoint(Wire):
    """Seal the last committed model and optimiser state under the checkpoint key; sealed chunks come in the answer's bulk.

    Answer: CheckpointPart.

    `key` is 32 bytes, fresh per checkpoint (derived by the orchestrator from its checkpoint key and `name`). Each chunk is sealed under one
    that is derived from it once more (docs/formats.md).
    """

    op: Literal["checkpoint"] = "checkpoint"
    key: Secret32
    name: WorkKey
    offset: int = Field(default=0, ge=0)
    length: int = Field(ge=1, le=32 * 1024 * 1024)


class Restore(Wire):
    """Open sealed chunks from bulk into the committed copy; the last part verifies both digests and rolls the model to it.

    Answer: Done, or Committed for the last part.
    """

    op: Literal["restore"] = "restore"
    key: Secret32
    name: WorkKey
    offset: int = Field(ge=0)
    length: int = Field(ge=1)
    records: int = Field(ge=1)
    last: bool = False
    model: HexSha256 | None = None
    optimiser: HexSha256 | None = None


class Export(Wire):
    """Read `length` bytes of the committed model; they come in the answer's bulk under the D2H key. Answer: Done."""

    op: Literal["export"] = "export"
    offset: int = Field(ge=0)
    length: int = Field(ge=1, le=32 * 1024 * 1024)


class Status(Wire):
    """Ask what the GPU holds. Answer: DeviceStatus."""

    op: Literal["status"] = "status"


class EndSession(Wire):
    """Wipe HBM and keys; the GPU is free for another session. Answer: Done."""

    op: Literal["end_session"] = "end_session"


Command = Annotated[
    OpenLife | InitSession | UploadProgram | Configure | Upload | InitModel | SetReady | OpenEpoch | DrawShare | InstallGrant | Fetch
    | Drain | Sweep | Measure | Train | TrainTour | Evaluate | EndTour | Poll | Commit | RollBack | Scrub | CloseVisit | Checkpoint
    | Restore | Export | Status | EndSession,
    Field(discriminator="op"),
]  # fmt: skip

COMMANDS: TypeAdapter[list[Any]] = TypeAdapter(list[Command])
