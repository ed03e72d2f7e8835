"""What the client returns, typed: the API's views as people and programs read them. Knows no HTTP and decides nothing.

Fields that a newer service adds are kept as they come (`model_extra`), so an older client goes on reading.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.names import SessionPhase

Loss = float | None


class View(BaseModel):
    """A part of an answer. Values do not change once they were read."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Me(View):
    """Who the orchestrator takes you for. `key`: SHA-256 of your raw public key, hex."""

    name: str
    role: str
    key: str


class Party(View):
    """An enrolled party. `key`: SHA-256 of `public_key` (raw Ed25519, hex); times in seconds since 1970."""

    name: str
    role: Literal["holder", "auditor"]
    public_key: str
    key: str
    enrolled_at: float | None = None
    last_seen: float | None = None
    key_valid_from: float | None = None
    key_valid_until: float | None = None


class PartyKeyView(View):
    """A key that a party has or had (`key`: its fingerprint). `valid_until`: none as long as it counts; `previous`: whose place it took;
    `statement`: the rotation that both keys signed."""

    key: str
    public_key: str
    valid_from: float
    valid_until: float | None = None
    came: Literal["enrolled", "rotated", "replaced"]
    came_by: str
    ended_by: str | None = None
    previous: str | None = None
    statement: dict[str, str] | None = None


class Gpu(View):
    """A GPU of the pool. `backend`: EMULATED or HARDWARE; `leased_to`: the session that has it."""

    id: str
    backend: str | None = None
    agent_url: str | None = None
    leased_to: str | None = None


class Fetch(View):
    """What one key asked for of a finished model within an hour. `fingerprint`: of the key that signed; `size_bytes`: of the whole file;
    `requests`, `bytes`: how many there were, and what they asked for together."""

    at: float
    party: str
    role: str
    fingerprint: str
    sha256: str
    size_bytes: int
    requests: int = 1
    bytes: int | None = None


class StoredProgram(View):
    """A training program in the library. `digest`: SHA-384, hex. `parameters`: elements of them all; None: its archive is damaged."""

    digest: str
    name: str
    operators: list[str] = []
    parameters: int | None = None
    parameter_tensors: int = 0


class Holder(View):
    """A holder of a session's roster, and how far it is."""

    holder: str
    decision: str | None = None
    channel: bool = False
    last_seen: float | None = None
    records_done: int = 0
    rejected: int = 0
    quarantined: bool = False


class CurrentVisit(View):
    """The visit under way."""

    id: str
    holder: str
    phase: str
    round: int
    index: int
    attempt: int


class Failure(View):
    """Why a session failed."""

    code: str | None = None
    detail: str | None = None
    remedy: str | None = None
    expected: str | None = None
    got: str | None = None


class Unlike(View):
    """One thing in which holders' datasets differ. A `mismatch` holds the session; a `warning` does not."""

    severity: Literal["mismatch", "warning"]
    code: str
    field: str
    holders: list[str]
    detail: str
    remedy: str


class Agreement(View):
    """What comparing the datasets of a session's approvals found. `compared`: holders whose approvals state a profile."""

    compared: list[str]
    held: bool
    findings: list[Unlike]


class Removal(View):
    """What is left of a session that its owner removed. `waits_for`: holders that have not fetched their last receipts; `until`: then at
    the latest it goes (None: the orchestrator waits for ever). Times in seconds since 1970."""

    asked_at: float
    waits_for: list[str]
    until: float | None


class Session(View):
    """A session. `version`: number of its last committed fact; `digest`s in hex; times in seconds since 1970; `predecessor`: the session
    that it goes on from; `paused_until`: when its pause ends it, if nobody resumes it (None: not paused, or no limit)."""

    id: str
    name: str
    phase: SessionPhase
    waiting_for: list[str]
    version: int
    manifest_digest: str
    owner: str
    predecessor: str | None = None
    program: str
    gpu: str
    backend: str | None
    created_at: float
    updated_at: float
    paused_at: float | None = None
    paused_until: float | None = None
    round: int
    rounds: int
    position: int | None = None
    visits_closed: int
    visits_total: int
    step: int
    steps_total: int
    holders: list[Holder]
    current_visit: CurrentVisit | None
    agreement: Agreement | None = None
    failure: Failure | None
    validation_loss: dict[str, Loss] | None
    model: dict[str, Any] | None
    removal: Removal | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.phase in (SessionPhase.COMPLETED, SessionPhase.FAILED, SessionPhase.CANCELLED)


class Visit(View):
    """One attempt of a visit. `durations`: seconds by step, in the order taken; `losses` only where they are released to you."""

    id: str
    session: str
    round: int
    index: int
    attempt: int
    holder: str
    phase: str
    outcome: str | None
    reason: str | None
    records: int | None = None
    steps: int | None = None
    epoch: int | None = None
    mean_loss: Loss = None
    losses: list[float] | None = None
    validation_before: Loss = None
    validation_after: Loss = None
    receipt: int | None = None
    durations: dict[str, float] = {}
    timers: dict[str, float] | None = None
    planned_at: float | None = None
    closed_at: float | None = None


class Event(View):
    """A fact of a session, or a loss on the way. `id` grows: a stream is taken up after the last one that was seen."""

    id: int
    kind: str = Field(description="session, visit, training, loss, …")
    fact: str | None = None
    seq: int | None = None
    at: float | None = None
    visit: str | None = None
    visits: list[str] = Field([], description="of a fact of a whole tour")
    holder: str | None = None
    step: int | None = None
    loss: float | None = None
    durations: dict[str, float] | None = Field(
        None, description="seconds by step, where it ends something that was timed"
    )
    tour_durations: dict[str, float] | None = Field(None, description="the same of a tour that was trained on as one")


class VerifiedReceipts(View):
    """A session's receipts after every check held. `datasets`: root that each holder approved; `privacy_spent`: epsilon by holder;
    `models`: digests of the models that the session may have ended with: one, but for a restore that no visit followed; `predecessor`:
    the session that it goes on from."""

    session: str
    leaves: int
    receipts: int
    backends: list[str]
    travel_mode: str
    holders: dict[str, int]
    datasets: dict[str, str]
    records: int
    privacy_spent: dict[str, float]
    root: str
    models: list[str]
    predecessor: str | None = None
