"""What a session is expected to take, as the orchestrator says it before anybody approves. Nothing in it is signed or relied on.

A reader that knows fewer fields leaves the others unread.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class HolderEstimate(_Part):
    """One holder's part, in all rounds. Null: not known yet; `Estimate.unknown` says why."""

    holder: str
    visits: int = Field(description="visits of the GPU to it")
    steps: int = Field(description="training steps on its records")
    records: int = Field(description="records that it sends; one that comes again counts again")
    bytes: int | None = Field(description="bytes of its records that are read and sent to the GPU")
    passes: float | None = Field(
        description="how often each of its records comes, once it has approved and said how many it has"
    )
    seconds_per_visit: float | None = Field(description="how long the GPU stays, as far as earlier sessions tell")
    seconds: float | None = Field(description="all of its visits")


class MeasuredCosts(_Part):
    """Medians over closed visits of earlier sessions at this orchestrator, in seconds; null where there were too few."""

    control_s: float | None = Field(description="of a visit, besides records, training and held-out check")
    byte_s: float | None = Field(description="of a byte of records: reading, sealing, sending, opening")
    step_s: float | None = Field(description="of a training step, with this program and batch on this GPU")
    check_s: float | None = Field(description="of a held-out check, in such a session")
    visits: int = Field(description="visits that control_s and byte_s are of")
    sessions: int = Field(description="sessions that those visits are of")
    trained_visits: int = Field(description="visits that step_s is of")


class Estimate(_Part):
    """What the whole session takes if nothing is left out, repeated or waited for."""

    visits: int
    steps: int
    bytes: int | None
    seconds: float | None = Field(description="the GPU's time in all; null: not known yet")
    gpu_hours: float | None = Field(description="the same in hours")
    holders: list[HolderEstimate]
    costs: MeasuredCosts
    basis: str = Field(description="where the seconds come from, and what they leave out")
    unknown: list[str] = Field(description="what is not known yet, why, and what to do")
