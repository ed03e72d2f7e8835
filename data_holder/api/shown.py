"""Rows as the operator's API shows them: one with damaged cells is shown as that, by what else is known, and takes no other one away.

Nothing is decided by it, nor by what it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from data_holder.api.dataset_models import DatasetView
from data_holder.api.models import ReceiptView, RequestView, VisitView
from data_holder.approvals import STATES
from data_holder.assembly import Holder
from data_holder.dataset_options import kept_options
from data_holder.once_at_a_time import MANIFEST_AGAIN
from data_holder.protocol.state import SessionState
from data_holder.receipts import explain, kept_checks
from data_holder.requests import verify_decision, verify_program, verify_signer
from data_holder.rule_finding import kept_findings
from data_holder.tables import rows
from shared.canonical import json_value, sha256
from shared.errors import GputError

_OPTIONS = (
    "what is kept of its options is damaged, and no session is served from it: add it again under its name; one of the settings is set "
    "right by a restart"
)
_CELLS = (
    "damaged in the database: {}. Shown is what else says so, and zero or nothing where nothing else does; to have it as it was, restore "
    "a backup, and check the disk"
)
_REFUSED = "its journal is refused, so it is not served, and no other session is stopped by it ({}): {}"
_REQUEST = (
    "session", "state", "phase", "received_at", "dataset", "decided_at", "decided_by", "reason", "delivered", "waiting_for",
)  # fmt: skip
_RECEIPT = ("session", "index", "visit", "epoch", "outcome", "backend", "closed_at")
V = TypeVar("V", DatasetView, RequestView, VisitView, ReceiptView)


def dataset_view(holder: Holder, row: rows.Row) -> DatasetView:
    """A dataset's row."""
    options, source = kept_options(row["options"]), holder.catalogue.withdrawals.source_of(row)
    values = {"name": row["name"], "path": row["path"], "options": options or {}, "source": source}
    told = {"name": str(row["name"]), "path": str(row["path"]), "added_at": 0.0}
    fault = _OPTIONS if options is None else None
    return _shown(DatasetView, values | {"added_at": row["added_at"]}, lambda: told, fault)


def request_view(holder: Holder, row: rows.Row) -> RequestView:
    """A request's row; where it is damaged, by this holder's journal."""
    kept = [
        finding for finding in kept_findings(row["findings"]) if finding.rule != MANIFEST_AGAIN
    ]  # as once it was kept
    found = [finding.as_json() for finding in (*kept, *holder.approvals.once.found(row["session"]))]
    values = {**{name: row[name] for name in _REQUEST}, "manifest": row["manifest_digest"], "findings": found}
    values |= _told_apart_by(holder.ledger.find(row["session"]), row["program"])
    refusal = holder.ledger.refusal(row["session"])
    fault = None if refusal is None else _REFUSED.format(refusal.code, refusal.advice)
    return _shown(RequestView, values, lambda: _by_journal(holder, str(row["session"])), fault)


def _told_apart_by(state: SessionState | None, program: Any) -> dict[str, Any]:
    """What an operator knows one of many requests by: from the journal, not from the row, but for the program, which its digest proves."""
    if state is None:
        return {"name": None, "program_name": None, "owner": None}
    name, digest = _titles(state.manifest)
    told: dict[str, Any] = {"name": name, "program_name": None, "owner": None}
    with suppress(GputError):  # the request itself says what is wrong, where it is opened
        owner = verify_signer(state)
        told["owner"] = owner and owner.fingerprint
    with suppress(GputError):
        told["program_name"] = _program_name(program, digest) if isinstance(program, bytes) else None
    return told


# A page reads its list every few seconds, and the same bytes say the same.
@lru_cache(maxsize=512)
def _titles(manifest: bytes) -> tuple[str, str]:
    says = json_value(manifest)
    return says["name"], says["program"]


@lru_cache(maxsize=64)
def _program_name(program: bytes, digest: str) -> str:
    return verify_program(program, digest).name


def visit_view(row: rows.Row) -> VisitView:
    """An attempt's row."""
    told: dict[str, Any] = {
        name: 0 for name, field in VisitView.model_fields.items() if field.annotation in (int, float)
    }
    return _shown(
        VisitView,
        rows.visit_row(row),
        lambda: told | {"visit": "", "session": "", "phase": "", "commitment": None, "refusal": None},
    )


def receipt_view(row: rows.Row) -> ReceiptView:
    """A receipt's row; where it is damaged, by the receipt's own bytes."""
    checks = kept_checks(row["checks"])
    values = {name: row[name] for name in _RECEIPT} | {
        "verified": bool(row["verified"]) and all(check.ok for check in checks), "checks": [check.as_json() for check in checks],
    }  # fmt: skip
    return _shown(ReceiptView, values, lambda: _by_bytes(row))


def _shown(view: type[V], values: dict[str, Any], told: Callable[[], dict[str, Any]], fault: str | None = None) -> V:
    """Args: `told`: what every field has that is damaged."""
    try:
        return view(**values, fault=fault)
    except ValidationError as error:
        bad = sorted({str(one["loc"][0]) for one in error.errors(include_url=False, include_input=False)})
    said = told()
    return view(**values | {name: said[name] for name in bad}, fault=fault or _CELLS.format(", ".join(bad)))


def _by_journal(holder: Holder, session: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "session": session, "manifest": "", "state": "waiting", "phase": None, "received_at": 0.0, "dataset": None, "decided_at": None,
        "decided_by": None, "reason": "", "delivered": False, "waiting_for": None,
    }  # fmt: skip
    try:
        state = holder.ledger.state(session)
        said = verify_decision(state, holder.approvals.keys)
    except GputError:  # it is not open yet, or has no such session
        return told
    told |= {"manifest": sha256(state.manifest).hex(), "phase": state.ended}
    if said is not None and state.decision is not None:
        told |= {"dataset": state.decision.dataset, "decided_by": state.decision.by, "decided_at": said.at}
        told |= {"reason": said.reason, "state": STATES[said.decision]}
    return told | ({} if state.ended is None else {"state": "ended"})


def _by_bytes(row: rows.Row) -> dict[str, Any]:
    told = {"session": "", "index": 0, "visit": "", "epoch": 0, "outcome": "", "backend": "EMULATED", "closed_at": 0.0}
    try:
        claims, statement = explain(row["cose"])
    except GputError:
        return told
    said = {name: claims[name] for name in ("session", "visit", "epoch", "outcome", "closed_at")}
    return told | said | {"backend": statement["backend"]}
