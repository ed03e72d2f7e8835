"""What a receipt states: the GPU's own claims of a visit, and the orchestrator's record around them. Knows no signature."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.claims import Claim, Grown
from shared.claims.manifest import PartyName
from shared.claims.privacy import Privacy, PrivacySpent
from shared.claims.program import HexSha256, HexSha384
from shared.claims.visit import SessionId, VisitId, VisitTimers
from shared.names import TravelMode

StatementBytes = Annotated[bytes, Field(max_length=16384)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
"""What every reader can hold exactly, a browser's numbers and a table's columns too: who signs another one is not believed."""
Counted = Annotated[Count, Field(ge=1)]


class Accumulated(Claim):
    """What a visit added to the accumulator: digests (BLAKE3) of optimiser state and accumulator around it, and how many batches' gradients
    the accumulator held after it."""

    before: HexSha256
    after: HexSha256
    batches: Count


class Mixed(Claim):
    """The mixture that a visit's records were trained on in: `records` in all, of which its own are those from `first` on before they were
    shuffled by `seed` (`shared.protocol.mixture`); of round `round` and of `visits` visits. The statement's steps are the mixture's."""

    round: Counted
    seed: Count
    visits: Counted
    records: Counted
    first: Count


class TourStatement(Claim):
    """What the GPU itself knows of a tour's end; payload (deterministic CBOR) of a COSE_Sign1 by its statement key.

    `batches`: whose gradients the accumulator held; `stepped`: one step was taken with their mean, or they were dropped. `optimiser_*` are
    digests of optimiser state and accumulator; the accumulator is empty afterwards.
    """

    profile: Literal["gput/tour/1"] = "gput/tour/1"
    device: str
    backend: Literal["EMULATED", "HARDWARE"]
    boot_counter: Count
    life: Count
    session: SessionId
    program: HexSha384
    round: Count
    batches: Count
    stepped: bool
    model_before: HexSha256
    model_after: HexSha256
    optimiser_before: HexSha256
    optimiser_after: HexSha256


class DeviceStatement(Grown):
    """What the GPU itself knows of one scrubbed visit; payload (deterministic CBOR) of a COSE_Sign1 by its statement key.

    `commitment` is that of the visit's own records; they were proven to be the planned ones of `dataset_records` under `dataset_root`.
    `privacy`: how the training was made private; absent where it was not. `accumulated`: what became of the accumulator, where the
    training was no step but added to it (`model_after` is then `model_before`). `mixed`: the mixture, where the training was on more than
    this visit's records.
    """

    later = ("privacy", "accumulated", "mixed")
    profile: Literal["gput/statement/1"] = "gput/statement/1"
    device: str
    backend: Literal["EMULATED", "HARDWARE"]
    boot_counter: Count
    life: Count
    session: SessionId
    visit: VisitId
    epoch: Count
    holder: PartyName
    travel_mode: TravelMode = TravelMode.SCOPED
    records: Count
    length: Count
    commitment: HexSha256
    dataset_root: HexSha256
    dataset_records: Count
    program: HexSha384
    model_before: HexSha256
    model_after: HexSha256
    first_step: Count
    steps: Count
    scrubbed_bytes: Count
    scrub_digest: HexSha256
    privacy: Privacy | None = None
    accumulated: Accumulated | None = None
    mixed: Mixed | None = None


class Receipt(Grown):
    """The record of one visit; payload (deterministic CBOR) of the orchestrator's COSE_Sign1; a leaf of the session's log.

    `dataset_root` is what the holder's signed approval states. `privacy_spent`: by the plan up to this visit; absent without privacy.
    """

    later = ("privacy_spent",)
    profile: Literal["gput/receipt/1"] = "gput/receipt/1"
    session: SessionId
    visit: VisitId
    index: Count
    round: Count
    attempt: Count
    holder: PartyName
    manifest: HexSha256
    dataset_root: HexSha256
    epoch: Count
    fence_epoch: Count
    outcome: Literal["closed", "rejected"]
    gpu_evidence: HexSha256
    holder_runtime_data: HexSha256
    orchestrator_runtime_data: HexSha256
    losses_released: bool
    validation_before: float | None = None
    validation_after: float | None = None
    timers: VisitTimers
    statement: StatementBytes
    closed_at: Count
    privacy_spent: PrivacySpent | None = None
