"""Commands of computation: train, evaluate, poll, commit, roll back. Knows the GPU's state; no tensor, no key."""

from __future__ import annotations

from typing import Final

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.commands_tour import signed_end
from gpu_agent.hardware.launch import launch
from gpu_agent.hardware.ledger import Work
from gpu_agent.hardware.model_memory import MODEL, ModelFact
from gpu_agent.hardware.regions import RegionFact
from gpu_agent.hardware.state import GpuState
from gpu_agent.hardware.trainable import require_next_step, trainable_visit
from shared.errors import BadRequest, ProtocolViolation
from shared.names import RegionKind, Role
from shared.wire.gpu import Commit, EndTour, Evaluate, Poll, RollBack, Train
from shared.wire.gpu_answers import Committed, WorkState

GATHER_S: Final = 0.25
"""So long a poll gathers steps before it tells of them: a frame for each short step would want the cores that train."""


def train(state: GpuState, command: Train, bulk: Bulk) -> WorkState:
    """Start training on a visit's fenced, published region; a repeated work is answered, never done twice."""
    known = state.ledger.find(command)
    if known is not None:
        return known.tell(state.release, 0)
    state.ledger.require_idle()
    if state.config.collect == "tour":
        raise ProtocolViolation("visits of this session are trained on as a tour, all at once", code="collected")
    visit = trainable_visit(state, command.visit, command.region, command.records)
    require_next_step(state, command.first_step)
    _check_records(state, command)
    MODEL.after(state.model.phase, ModelFact.TRAIN, Role.ORCHESTRATOR)
    region = state.regions.get(command.region)
    descriptor = launch(state, "train", region, command.records, command.first_step, command.steps, visit.grant)
    visit.before = state.model.require_committed().told()
    state.compute.start(descriptor)
    state.model.state(ModelFact.TRAIN)
    state.regions.move(command.region, RegionFact.TRAIN, Role.ORCHESTRATOR)
    work = Work(command, batch=state.config.options.batch_size, own_data=False, different=visit.different)
    state.ledger.begin(work)
    visit.work = work
    state.ledger.trained(visit)
    return work.tell(state.release, 0)


def _check_records(state: GpuState, command: Train) -> None:
    if command.steps * state.config.options.batch_size > command.records:
        raise BadRequest(
            f"{command.steps} steps of {state.config.options.batch_size} records need more than {command.records} records",
            code="too-few-records",
        )


def evaluate(state: GpuState, command: Evaluate, bulk: Bulk) -> WorkState:
    """Start an evaluation over the validation region, or over a fenced, published dataset region."""
    known = state.ledger.find(command)
    if known is not None:
        return known.tell(state.release, 0)
    state.ledger.require_idle()
    region = state.regions.get(command.region)
    own, different = region.kind is RegionKind.VALIDATION, None
    if not own and state.config.privacy is not None:
        raise ProtocolViolation("a holder's records are not evaluated where training is private", code="not-released")
    if not own:
        state.regions.require(command.region, RegionFact.EVALUATE, Role.ORCHESTRATOR)
        visit = state.ledger.visit_in(command.region)
        if visit is None or visit.content is None or command.records > visit.content.records:
            raise ProtocolViolation(
                f"region {command.region} does not hold {command.records} records", code="wrong-records"
            )
        different = visit.different
    if command.records * state.archive.manifest.records.record_bytes > region.length:
        raise ProtocolViolation(
            f"region {command.region} does not hold {command.records} records", code="wrong-records"
        )
    state.compute.start(launch(state, "evaluate", region, command.records, 0, 0))
    if not own:
        state.regions.move(command.region, RegionFact.EVALUATE, Role.ORCHESTRATOR)
    work = Work(command, batch=state.config.options.batch_size, own_data=own, different=different)
    state.ledger.begin(work)
    return work.tell(state.release, 0)


def poll(state: GpuState, command: Poll, bulk: Bulk) -> WorkState:
    """A work's state; waits, without holding up copies, until the work is over, or steps beyond `after` were gathered for GATHER_S, or the
    time is over."""
    work = state.ledger.work(command.work)
    began = state.timer()  # a clock that is set back or forward makes no wait longer or shorter
    deadline = began + command.wait_ms / 1000
    while work.state == "running":
        until = min(deadline, began + GATHER_S) if work.has_news(command.after) else deadline
        left = until - state.timer()
        news = state.wait(left) if left > 0 else []
        if not news:
            break
        state.take_news(news)
    return work.tell(state.release, command.after)


def commit(state: GpuState, command: Commit, bulk: Bulk) -> Committed:
    """Make the work's result the last committed state."""
    work = state.ledger.work(command.work)
    if work.committed is not None:
        return work.committed
    if state.ledger.pending is not work or work.state != "done" or work.end is None:
        raise ProtocolViolation(f"work {command.work!r} is not a finished training to commit", code="nothing-to-commit")
    if not work.end.finite:
        raise ProtocolViolation(f"work {command.work!r} met a loss that is no number", code="not-finite")
    work.committed = state.model.commit().told()
    state.ledger.settle(work.committed)
    if isinstance(work.command, EndTour):
        work.committed = signed_end(state, work, work.command)
    return work.committed


def roll_back(state: GpuState, command: RollBack, bulk: Bulk) -> Committed:
    """Back to the last committed state, bit for bit; a training that still runs is ended first."""
    if state.ledger.running is not None:
        state.take_news(state.compute.destroy())
    committed = state.model.roll_back().told()
    state.ledger.settle(committed)
    return committed
