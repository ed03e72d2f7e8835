"""Bodies of the operator's API, with examples. Knows no behaviour."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from data_holder.settings import DatasetName
from shared.wire.visit import Decision

SessionPath = Annotated[str, Path(pattern=r"^s_[0-9a-z]{16}$", examples=["s_0123456789abcdef"])]
VisitPath = Annotated[str, Path(pattern=r"^v_[0-9a-z]{16}$", examples=["v_0123456789abcdef"])]
IndexPath = Annotated[int, Path(ge=0, lt=2**53)]
Reason = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["a3" * 32])]
RequestState = Literal["waiting", "approved", "refused", "vetoed", "ended"]
Fault = Annotated[
    str | None,
    Field(
        description="what is kept of it in the database was damaged, so that it is not shown as it was, or not served; and what to do"
    ),
]
T = TypeVar("T")


class Body(BaseModel):
    """Strict: an unknown field is an error, so that a misspelt one cannot be overlooked."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Page(Body, Generic[T]):
    """One page of a list; `next` is the cursor of the following one."""

    items: list[T]
    next: str | None = None


class Identity(Body):
    """Who this holder is; `public_key` is what the orchestrator enrols."""

    name: str = Field(examples=["hospital-a"])
    fingerprint: Digest
    public_key: str
    orchestrator_url: str
    backend: str = Field(examples=["emulated"])
    approve: Literal["manual", "policy"]
    connected: bool
    sessions: int
    changes: int = Field(
        description="commits to this holder's journals since its service started: while it stays the same, no visit and no receipt is "
        "new or other than it was"
    )


class NewToken(Body):
    """A bearer token that its user made: 32 random bytes, hex. No answer ever repeats it."""

    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["5f" * 32])]


class SessionBody(Body):
    """Names a session whose program is meant."""

    session: str = Field(pattern=r"^s_[0-9a-z]{16}$", examples=["s_0123456789abcdef"])


class ApproveBody(Body):
    """`manifest` must be the digest that was shown; `dataset` may be left out where policy or settings name one. Without `statistics` the
    approval says nothing of the records themselves. `anew`: it takes the place of an approval, with what the dataset declares now."""

    manifest: Digest
    dataset: DatasetName | None = None
    reason: Reason = ""
    statistics: bool = True
    anew: bool = False


class RefuseBody(Body):
    """A refusal or a veto of the manifest that was shown."""

    manifest: Digest
    reason: Reason = ""


class FindingView(Body):
    """One policy rule's verdict."""

    rule: str
    ok: bool
    expected: str
    got: str


class ProgramView(Body):
    """What will run: every operator the program's graphs call, and the record it expects."""

    digest: str
    name: str
    description: str
    operators: list[str]
    records: dict[str, Any]
    parameters: int
    parameter_tensors: int
    tokenizer: str


class RequestView(Body):
    """A session that asks this holder, and this holder's answer."""

    session: str
    name: str | None = Field(description="the session's, by its manifest; null: its journal is refused")
    program_name: str | None = Field(description="null until the program is fetched")
    owner: str | None = Field(
        description="fingerprint of the key that signed the manifest, to which the model goes where it is released to the owner; null: "
        "the orchestrator is of a release that does not say, or the session's journal is refused"
    )
    manifest: str
    state: RequestState
    phase: str | None
    received_at: float
    dataset: str | None
    decided_at: float | None
    decided_by: Literal["operator", "policy"] | None
    reason: str
    delivered: bool
    waiting_for: str | None
    findings: list[FindingView]
    fault: Fault


class PrivacyView(Body):
    """What the plan spends at most of one record's privacy: of the approved dataset; without one, as if no record took part twice."""

    epsilon: float
    delta: float


class EstimateView(Body):
    """What the session would take of this holder if nothing is repeated. Null: not known yet; `unknown` says why, and what to do."""

    visits: int
    steps: int
    records: int = Field(description="records sent; one that comes again counts again")
    bytes: int | None = Field(description="bytes of this holder's records that are read and sent to the GPU")
    passes: float | None = Field(description="how often each record comes; null before a dataset was approved")
    seconds_per_visit: float | None = Field(description="how long the GPU stays")
    seconds: float | None = Field(description="all visits to this holder")
    session_seconds: float | None = Field(description="the GPU's time in the whole session")
    basis: str = Field(description="where the figures come from")
    unknown: list[str]


class RequestDetail(RequestView):
    """The request in full: the manifest as approved by digest, the program (null until fetched, or while a damaged copy cannot be had
    again), the root this holder signed for, the privacy that its records would spend (null where the manifest asks for none), the newest
    log head it saw (null before the first), and the measurements of orchestrators that its share of the session's key was given to."""

    decision: Decision | None = Field(description="this holder's newest word, by its signature; null: none yet")
    document: dict[str, Any]
    dataset_root: str | None
    estimate: EstimateView
    profile: dict[str, Any] | None = Field(description="what the approval says of the dataset's fields, as signed")
    privacy: PrivacyView | None
    log_head: str | None = Field(
        description="SIZE:ROOT, as `gput receipts verify --head` takes it", examples=["41:" + "5f" * 32]
    )
    share_released_to: list[str]
    program: ProgramView | None


class CheckResult(Body):
    """The policy's verdict, without deciding anything."""

    allowed: bool
    findings: list[FindingView]


class PolicyView(Body):
    """The policy as loaded; it was linted at start."""

    mode: Literal["manual", "policy"]
    path: str | None
    policy: dict[str, Any] | None
    problems: list[str]


class Refusal(Body):
    """Why this holder refused or gave up an attempt."""

    code: str
    detail: str


class VisitView(Body):
    """One attempt of a visit (one epoch)."""

    visit: str
    session: str
    round: int
    index: int
    attempt: int
    epoch: int
    phase: str
    records: int
    length: int
    commitment: str | None
    start: int
    count: int
    bytes_sent: int
    timers: dict[str, float] | None
    refusal: Refusal | None
    at: float
    fault: Fault


class VisitDetail(VisitView):
    """The latest attempt, and all of them."""

    attempts: list[VisitView]


class CheckView(Body):
    """One check of a receipt."""

    check: str
    ok: bool
    detail: str


class ReceiptView(Body):
    """A receipt with the outcome of its verification against this holder's own memory."""

    session: str
    index: int
    visit: str
    epoch: int
    outcome: str
    backend: Literal["EMULATED", "HARDWARE"]
    closed_at: float
    verified: bool
    checks: list[CheckView]
    fault: Fault


class ReceiptDetail(ReceiptView):
    """The receipt's bytes (base64 COSE_Sign1) and what they say."""

    receipt: str
    claims: dict[str, Any]
    statement: dict[str, Any]


class LinksView(Body):
    """Bytes of bodies per link since start, counted at the client. `dataset_bytes_to_orchestrator` is zero by construction."""

    dataset_bytes_to_gpu: int
    proof_bytes_to_gpu: int
    dataset_bytes_to_orchestrator: int
    bytes_to_gpu: int
    bytes_to_orchestrator: int
    bytes_from_gpu: int
    bytes_from_orchestrator: int
