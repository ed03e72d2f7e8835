"""What readers see of a session, as JSON values. Decides nothing. Knows no storage and no HTTP."""

from __future__ import annotations

from math import isfinite
from typing import Any

from orchestrator.sessions.agreement import Finding, some
from orchestrator.sessions.state import SessionState
from shared.claims.accountant import spent_in
from shared.claims.manifest import RosterEntry
from shared.names import SessionPhase

TRAFFIC = (
    "holder_to_gpu_records",
    "holder_to_gpu_proofs",
    "holder_to_gpu_sent",
    "orchestrator_to_gpu",
    "gpu_to_orchestrator",
)


def waiting_for(state: SessionState) -> list[str]:
    """For whom the session waits, as far as the journal knows; the runner adds what it waits for at this moment."""
    if state.phase is SessionPhase.AWAITING_APPROVAL:
        undecided = [_undecided(e.holder, state) for e in state.manifest.roster if e.holder not in state.active]
        return undecided + [_unlike(finding) for finding in state.unlike if finding.holds]
    if state.phase is SessionPhase.PAUSED:
        return [f"{state.owner} (paused)"]
    if state.phase is SessionPhase.READY:
        return [state.gpu]
    return []


def paused_until(paused_at: float | None, limit_s: float) -> float | None:
    """When a pause ends the session; None: it is not paused, or may stay so for ever. Seconds since 1970."""
    return None if paused_at is None or not isfinite(limit_s) else paused_at + limit_s


def _undecided(holder: str, state: SessionState) -> str:
    decision = state.decisions.get(holder)
    return f"{holder} ({'approval' if decision is None else 'said ' + decision})"


def _unlike(finding: Finding) -> str:
    return f"{some(finding.holders)} ({finding.code})"


def _agreement(state: SessionState) -> dict[str, Any]:
    """What comparing the approved datasets found. `held`: a mismatch keeps the session from beginning."""
    waits = state.phase is SessionPhase.AWAITING_APPROVAL
    return {
        "compared": [holder for holder, profile in state.profiles.items() if profile is not None],
        "held": waits and any(finding.holds for finding in state.unlike),
        "findings": [finding.as_json() for finding in state.unlike],
    }  # fmt: skip


def summary(state: SessionState) -> dict[str, Any]:
    """The part of the session's page that is stored with it."""
    committed, visit = state.committed, state.current or next(reversed(state.gathered), None)
    return {
        "id": state.id,
        "name": state.manifest.name,
        "phase": state.phase.value,
        "waiting_for": waiting_for(state),
        "version": state.seq,
        "manifest_digest": state.manifest_digest,
        "owner": state.owner,
        "predecessor": None if state.inherited is None else state.inherited.session,
        "program": state.manifest.program,
        "gpu": state.gpu,
        "backend": state.backend,
        "updated_at": state.updated_at,
        "paused_at": state.paused_at,
        "round": min(state.manifest.rounds, state.position // len(state.manifest.roster) + 1),
        "rounds": state.manifest.rounds,
        # Of all: after a restore what lies behind the model is less, and its visits are made, and receipted, again.
        "position": state.position,
        "visits_closed": state.visits_closed,
        "visits_total": state.itinerary.length,
        "step": committed.step if committed else 0,
        "steps_total": state.itinerary.total_steps,
        "holders": [_holder(entry, state) for entry in state.manifest.roster],
        "current_visit": None if visit is None else {
            "id": visit.id, "holder": visit.holder, "phase": visit.shown_phase, "round": visit.round,
            "index": visit.index, "attempt": visit.attempt,
        },
        "agreement": _agreement(state),
        "failure": state.failure,
        "validation_loss": _validation(state),
        "stopped_early": state.stopped or None,
        "model": state.exported,
        "log": {"size": state.tree.size, "root": state.tree.root().hex()},
        "bytes": {name: state.traffic.get(name, 0) for name in TRAFFIC},
    }  # fmt: skip


def _holder(entry: RosterEntry, state: SessionState) -> dict[str, Any]:
    name = entry.holder
    return {
        "holder": name, "decision": state.decisions.get(name), "channel": False, "last_seen": None,
        "records_done": state.records_done.get(name, 0), "rejected": state.rejected.get(name, 0),
        "quarantined": name in state.quarantined, "privacy": _privacy(entry, state),
    }  # fmt: skip


def _privacy(entry: RosterEntry, state: SessionState) -> dict[str, float] | None:
    """Epsilon of the holder's records at delta: `spent` so far, as its newest receipt says, and `planned` in all. None without privacy.

    A holder that has not approved yet has named no records; what is planned is then the least that it can be.
    """
    dataset, manifest = state.datasets.get(entry.holder), state.manifest
    records, steps = dataset.records if dataset is not None else None, entry.steps_per_visit or manifest.steps_per_visit
    planned = spent_in(manifest, manifest.rounds * steps, records)
    so_far = spent_in(manifest, state.rounds_spent.get(entry.holder, 0) * steps, records)
    if planned is None or so_far is None:
        return None
    return {"spent": so_far.epsilon, "planned": planned.epsilon, "delta": planned.delta}


def _validation(state: SessionState) -> dict[str, float | None] | None:
    if state.manifest.validation is None or state.committed is None:
        return None
    return {"first": state.first_validation, "last": state.committed.validation}
