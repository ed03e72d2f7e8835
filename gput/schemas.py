"""What each command prints with --format json, as types; `gput … --schema` prints their JSON Schema. Loaded for that, and by tests.

With --format jsonl a list's items are lines of their own. Objects may gain fields; none goes, and none changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from gput.models import Event, Fetch, Me, Party, PartyKeyView, Session, VerifiedReceipts, View, Visit
from gput.rehearsing import Rehearsed
from shared.errors import BadRequest
from shared.wire.estimate import Estimate


class Step(View):
    """What a step of a visit took; `share`: of all the visits' time, in percent."""

    step: str
    median_ms: float
    p99_ms: float
    share: str


class TimelineSpan(View):
    """One step of one visit, or of a whole tour (`visit` and `holder` are "" then). `begin`: seconds since 1970; `party`: who has
    the GPU meanwhile."""

    party: str
    kind: Literal["grant", "provision", "return", "train", "scrub"]
    step: str
    visit: str
    holder: str
    begin: float
    seconds: float


class Dry(View):
    """What a submission would be about. `missing`: what would make it fail; `unjudged`: what nobody could say beforehand; `changes`: false
    where the same was submitted before, null where the orchestrator did not say that it would be taken."""

    name: str
    owner: str
    manifest_digest: str
    rounds: int
    visits: int
    holders: list[str]
    missing: list[str]
    unjudged: list[str]
    changes: bool | None


class Differing(View):
    """A field in which a successor's manifest differs from its predecessor's; empty where it is absent."""

    field: str
    before: str
    after: str


class Request(View):
    """What a session asks of a holder, and what was decided; times in seconds since 1970, `manifest`: its digest, hex."""

    session: str
    manifest: str
    state: str


class TokenRow(View):
    """Who has a read-only token. `sha256`: the token's digest, hex."""

    name: str
    role: Literal["auditor", "owner"]
    sha256: str


class ShownEstimate(Estimate):
    """With what it would cost. `gpu_hour_price`: as you gave it; `cost`: GPU hours times that, null while either is unknown."""

    gpu_hour_price: float | None
    cost: float | None


class ShownSession(Session):
    """A session with what it is expected to take; `estimate` is null where the orchestrator gives none."""

    estimate: ShownEstimate | None


class DatasetRow(View):
    """A dataset of a holder's service. `units`, `classes`: FIELD=WORD,WORD,… as declared; `source`: who named it, or
    `withdrawn`; `fault`: what is wrong with what is kept of it."""

    name: str
    path: str
    units: list[str]
    classes: list[str]
    source: str | None = None
    fault: str | None = None


class Hop(View):
    """A hop that was tested."""

    hop: str
    result: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str | None


class ShownSetting(View):
    """A setting. `origin` only with --origin: flag, environment NAME, file PATH, default."""

    setting: str
    value: Any
    origin: str | None = None


class Smoked(View):
    """A smoke test that held."""

    result: Literal["works"]
    session: str
    visits: int
    receipts: int
    backends: list[str]
    seconds: float
    root: str


class Evaluated(View):
    """A model's mean loss over records, None where it is no number any more; `perplexity`: e to it, None where that is beyond a float."""

    loss: float | None
    perplexity: float | None
    records: int


class Demonstrated(View):
    """A demo that came to its end. `check`: the same in plain PyTorch, as the demo's own page explains."""

    demo: str
    session: str
    backend: str
    seconds: float
    visits: int
    steps: int
    held_out_loss: dict[str, float | None]
    check: dict[str, Any]
    bytes: dict[str, int | None]
    receipts: dict[str, int]
    model: str
    folder: str


class Held(VerifiedReceipts):
    """Receipts of which every check held."""

    result: Literal["all hold"]


class ReceiptRow(View):
    """A receipt as it says of itself; nothing of it was verified. `leaf`: its number in the log."""

    leaf: int
    holder: str
    outcome: str


class AttestationRow(View):
    """An attestation result that the orchestrator relied on; `token`: the signed one."""

    subject: str
    kind: str
    root_set: str
    verdict: str
    status: str
    token: str
    checks: list[dict[str, Any]]


class Judgement(View):
    """One piece of evidence, with every check that was made of it."""

    checks: list[dict[str, Any]] = Field(default_factory=list)


class Piece(View):
    """A file of evidence, taken apart; the other fields are the evidence's own."""

    file: str
    kind: str = Field(alias="is")


class Fit(View):
    """Whether data fits a program."""

    fits: bool | str
    findings: list[dict[str, Any]] = Field(default_factory=list)


class Drawn(View):
    """Held-out records. `dataset`: SHA-256 of the file, hex."""

    dataset: str
    records: int


class Program(View):
    """A training program as its approver reads it."""

    name: str
    digest: str
    operators: list[str]
    record_bytes: int
    parameters: int
    memory_bytes: dict[str, int]


class Operators(View):
    """A group of operators that programs may call."""

    group: str
    operators: list[str]


class Mocked(View):
    """Made-up records. `path`: what a reader is given; `kind`: which one; `schema`: the file that says what they follow."""

    path: str
    kind: str
    records: int
    followed: str = Field(alias="schema")


class Plan(View):
    """Steps per visit that are recommended, and what other lengths would cost."""

    steps_per_visit: int
    why: str
    work: dict[str, Any]
    costs: dict[str, float | None]
    lengths: list[dict[str, Any]]


class Figures(View):
    """A row of a bench; with --runs above 1: `figure`, `unit`, `median`, `least`, `most`."""


class Change(View):
    """A figure of two results."""

    figure: str
    unit: str
    verdict: str


BENCHES = (
    "visit", "transfer", "travel", "ablation", "training", "cuda", "attest", "receipts", "checkpoint", "life", "lengths",
)  # fmt: skip
OUTPUTS: dict[str, Any] = {
    "session submit": Session, "session list": list[Session], "session show": ShownSession, "session wait": Session,
    "session pause": Session, "session resume": Session, "session cancel": Session, "session visits": list[Visit],
    "session steps": list[Step], "session logs": list[Event], "session timeline": list[TimelineSpan],
    "session fetches": list[Fetch], "session succeed": list[Differing], "session succeed --submit": Session,
    "session submit --dry-run": Dry, "session rehearse": Rehearsed,
    "party enrol": Party, "party list": list[Party], "party keys": list[PartyKeyView], "party rotate-key": Party,
    "party rotate-key --dry-run": Me, "party revoke-key": Party, "party replace-key": Party, "token list": list[TokenRow],
    "party requests": list[Request], "party request": Request,
    "party approve": Request, "party refuse": Request, "party veto": Request,
    "party datasets": list[DatasetRow], "party declare": DatasetRow,
    "data inspect": Fit, "data pack": Drawn, "data mock": Mocked, "data evaluate": Evaluated,
    "receipts verify": Held, "receipts show": list[ReceiptRow],
    "attest verify": list[Judgement], "attest explain": list[Judgement], "attest inspect": list[Piece],
    "attest session": list[AttestationRow], "program inspect": Program, "program operators": list[Operators], "plan": Plan,
    **{f"bench {name}": list[Figures] for name in BENCHES}, "bench compare": list[Change],
    "doctor": list[Hop], "demo": Demonstrated, "smoke": Smoked, "config show": list[ShownSetting],
}  # fmt: skip


def schema_of(words: Sequence[str]) -> str:
    """The JSON Schema of what the command that begins these words prints. Raises: BadRequest `no-schema`: it prints no such thing."""
    named = [word for word in words if not word.startswith("-")]
    other = next((f" {flag}" for flag in ("--dry-run", "--submit") if flag in words), "")
    for path in (f"{' '.join(named[:2])}{other}", " ".join(named[:2]), *named[:1]):
        if path in OUTPUTS:
            schema = TypeAdapter(OUTPUTS[path]).json_schema(mode="serialization")
            dialect = "https://json-schema.org/draft/2020-12/schema"
            return json.dumps({"$schema": dialect, **schema, "title": f"gput {path}"}, indent=2)
    raise BadRequest(f"gput {' '.join(named)} has no output with a schema", code="no-schema",
                     remedy="Commands with --format have one.")  # fmt: skip
