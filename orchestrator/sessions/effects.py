"""What each fact does to a session's state, beside the moves of the protocol tables. Decides nothing; knows no storage.

One function a fact; a fact without one changes nothing but phases and the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator.sessions import sealed_models
from orchestrator.sessions.acceptance import newest
from orchestrator.sessions.checking import checked, first_checked, last_checked
from orchestrator.sessions.remembered import ApprovedDataset, Inherited, JudgedTour, ModelState, Placement
from shared.claims.profile import DatasetProfile

if TYPE_CHECKING:
    from orchestrator.sessions.state import SessionState
    from orchestrator.sessions.visit_state import VisitState


def _submitted(state: SessionState, body: dict[str, Any]) -> None:
    state.start_model, state.inherited = body["start_model"], Inherited.of(body["inherited"])
    state.owner_key = body["owner_key"]


def _said(state: SessionState, body: dict[str, Any], decision: str) -> None:
    state.decisions[body["holder"]], state.compared = decision, None
    state.words.setdefault(body["holder"], {})[body["document"]] = body["signature"]


def _approved(state: SessionState, body: dict[str, Any]) -> None:
    _said(state, body, "approve")
    profile = None if body["profile"] is None else DatasetProfile.model_validate(body["profile"])
    state.datasets[body["holder"]] = ApprovedDataset(body["dataset_root"], body["records"], body["public_key"], profile)


def _life_opened(state: SessionState, body: dict[str, Any]) -> None:
    state.life, state.boot_counter = body["life"], body["boot_counter"]
    state.device, state.backend, state.signing_key = body["device"], body["backend"], body["signing_key"]
    state.claims.clear()
    if not body["resumed"]:
        state.placement = None  # the GPU was wiped: it holds nothing until `placed` says so again


def _placed(state: SessionState, body: dict[str, Any]) -> None:
    state.placement, state.judged = Placement(**body["placement"]), None
    if body["model"] is not None:  # absent when `restored` follows
        state.initial = state.committed = ModelState(**body["model"])
        state.position = state.attempts = state.blamed = 0
        state.best, state.best_before, state.chosen, state.stopped = None, None, False, ""
        first_checked(state, state.committed)
        if state.first_validation is None:
            state.first_validation = state.committed.validation


def _trained(state: SessionState, body: dict[str, Any]) -> None:
    if state.manifest.privacy is not None and state.current is not None:
        state.trained[state.current.index] = state.committed
        _spent(state)


def _spent(state: SessionState) -> None:
    if state.manifest.privacy is not None and state.current is not None:
        holder, spent = state.current.holder, state.rounds_spent
        spent[holder] = max(state.current.round, spent.get(holder, 0))


def _offered(state: SessionState, body: dict[str, Any]) -> None:
    state.offered_heads[state.open_visit(body["visit"]).holder] = body["log_size"]


def _fenced(state: SessionState, body: dict[str, Any]) -> None:
    state.count(
        holder_to_gpu_records=body.get("length", 0), holder_to_gpu_proofs=body.get("proof", 0),
        holder_to_gpu_sent=body.get("bytes_sent", 0),
    )  # fmt: skip


def _verified(state: SessionState, body: dict[str, Any]) -> None:
    if state.manifest.collect == "tour" and state.current is not None:
        state.gathered = sorted([*state.gathered, state.current], key=lambda visit: visit.index)
        state.current = None
        state.advance()


def _waiting(state: SessionState, body: dict[str, Any]) -> VisitState | None:
    return next((visit for visit in state.gathered if visit.id == body["visit"]), None)


def _abandoned(state: SessionState, body: dict[str, Any]) -> None:
    if body.get("broken"):
        holder = state.open_visit(body["visit"]).holder
        state.breaks[holder] = state.breaks.get(holder, 0) + 1
    if body.get("outage"):
        index = state.open_visit(body["visit"]).index
        state.outages[index] = state.outages.get(index, 0) + 1
    waiting = _waiting(state, body)
    if waiting is not None:
        state.gathered.remove(waiting)
        if body.get("again", True):
            state.go_back_to(waiting.index)
        return
    if state.ahead is not None and body["visit"] == state.ahead.id:
        state.ahead = None  # its stop comes when it is due, and nothing counts against it
        return
    _quarantine(state, body)
    if body.get("quarantine"):
        state.distrusted.append(state.open_visit(body["visit"]).holder)
    state.current = None
    if body.get("blame"):
        state.blamed, state.setback = state.blamed + 1, body["reason"]
    if not body.get("again", True):
        state.advance()


def _closed(state: SessionState, body: dict[str, Any]) -> None:
    visit = state.open_visit(body["visit"])
    _link_bytes(state, body)
    state.committed = ModelState(**body["model"])
    state.visits_closed += 1
    state.outages.pop(visit.index, None)
    state.breaks.pop(visit.holder, None)
    state.records_done[visit.holder] = state.records_done.get(visit.holder, 0) + visit.records
    if visit in state.gathered and not state.let_go(visit):
        return  # the update is the whole tour's, and counts once; so does its check
    # The check of a tour is of all its round, whoever had the last visit of it.
    position = visit.index if state.current is not None else state.position
    if state.manifest.accumulate is None:
        checked(state, position, visit.details.get("validation_after"))
    if visit.details.get("update_size") is not None:
        updates = {**state.updates, visit.index: visit.details["update_size"]}
        state.updates = newest(updates, state.manifest.acceptance)
    if state.current is None:  # the last of a tour
        return
    state.current = None
    state.advance()
    if state.ahead is not None:
        state._begin(state.ahead)
        state.ahead = None


def _link_bytes(state: SessionState, body: dict[str, Any]) -> None:
    state.count(orchestrator_to_gpu=body.get("bytes_to_gpu", 0), gpu_to_orchestrator=body.get("bytes_from_gpu", 0))


def _quarantine(state: SessionState, body: dict[str, Any]) -> None:
    if body.get("quarantine"):
        state.quarantined.append(state.open_visit(body["visit"]).holder)
        state.compared = None


def _rejected(state: SessionState, body: dict[str, Any]) -> None:
    _spent(state)
    visit = state.open_visit(body["visit"])
    if body.get("blame", True):  # of a tour, whose visits are all rejected, at most one is to blame
        state.rejected[visit.holder] = state.rejected.get(visit.holder, 0) + 1
    _quarantine(state, body)
    state.outages.pop(visit.index, None)
    state.visits_closed += 1
    if visit in state.gathered:
        if not state.let_go(visit):
            return
    else:
        state.current = None
        state.advance()
    if body.get("validation_after") is not None:
        state.checked_at = state.position


def _tour_judged(state: SessionState, body: dict[str, Any]) -> None:
    state.judged = JudgedTour(
        body["round"],
        body["work"],
        body["stepped"],
        body["reason"],
        body["validation_before"],
        body["validation_after"],
    )


def _tour_ended(state: SessionState, body: dict[str, Any]) -> None:
    _link_bytes(state, body)
    if state.judged is not None and state.judged.stepped:
        checked(state, state.position, state.judged.after)
    if state.judged is not None and state.judged.after is not None:
        state.checked_at = body["round"] * len(state.manifest.roster)  # whoever had the last visit of it
    state.committed, state.judged = ModelState(**body["model"]), None
    state.tour_failures.pop(body["round"], None)


def _tour_failed(state: SessionState, body: dict[str, Any]) -> None:
    state.judged = None  # what was judged is rolled back
    state.tour_failures[body["round"]] = body["attempt"]


def _exported(state: SessionState, body: dict[str, Any]) -> None:
    _link_bytes(state, body)
    state.exported = {"digest": body["digest"], "sha256": body["sha256"], "size_bytes": body["size_bytes"]}


def _failed(state: SessionState, body: dict[str, Any]) -> None:
    state.failure = {name: body.get(name) for name in ("code", "detail", "remedy", "expected", "got")}
    _nothing_open(state, body)


def _nothing_open(state: SessionState, _body: dict[str, Any]) -> None:
    state.current = state.ahead = None
    state.gathered = []


def _pause_asked(state: SessionState, body: dict[str, Any]) -> None:
    state.pause_asked, state.asked_by = True, body["party"]


def _cancel_asked(state: SessionState, body: dict[str, Any]) -> None:
    state.cancel_asked, state.asked_by = True, body["party"]


def _pause_settled(state: SessionState, _body: dict[str, Any]) -> None:
    state.pause_asked = False


HANDLERS: dict[str, Callable[[SessionState, dict[str, Any]], None]] = {
    "gpu.claimed": lambda s, b: s.claims.append((b["life"], b["boot_counter"])),
    "session.submitted": _submitted,
    "session.approved": _approved,
    "session.refused": lambda s, b: _said(s, b, "refuse"),
    "session.vetoed": lambda s, b: _said(s, b, "veto"),
    "session.life_opened": _life_opened,
    "session.placed": _placed,
    "session.unplaced": lambda s, b: setattr(s, "placement", None),
    "session.restored": sealed_models.restored,
    "session.checkpoints_gone": sealed_models.gone,
    "session.checkpointed": sealed_models.checkpointed,
    "session.tour_judged": _tour_judged,
    "session.tour_ended": _tour_ended,
    "session.tour_failed": _tour_failed,
    "session.last_checked": last_checked,
    "session.stopped_early": lambda s, b: setattr(s, "stopped", b["reason"]),
    "session.best_chosen": lambda s, b: setattr(s, "chosen", True),
    "session.best_restored": sealed_models.best_restored,
    "session.exported": _exported,
    "session.failed": _failed,
    "session.pause_asked": _pause_asked,
    "session.paused": _pause_settled,
    "session.resumed": _pause_settled,
    "session.cancel_asked": _cancel_asked,
    "session.cancelled": _nothing_open,
    "visit.offered": _offered,
    "visit.fenced": _fenced,
    "visit.verified": _verified,
    "visit.recalled": _abandoned,
    "visit.quarantined": _abandoned,
    "visit.lost": _abandoned,
    "training.trained": _trained,
    "training.recalled": _abandoned,
    "training.quarantined": _abandoned,
    "training.lost": _abandoned,
    "training.rejected": _rejected,
    "training.closed": _closed,
}
