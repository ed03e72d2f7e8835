"""Steps 9 and 10, train and validate: the GPU works, the orchestrator watches, then accepts or rejects. Knows no holder's data.

Losses come from the GPU rounded and under the privacy floor already; here they are only passed on, by the release rule.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from orchestrator.sessions.acceptance import unusual, update_size
from orchestrator.sessions.book import Row
from orchestrator.sessions.facts import new_fact
from orchestrator.tables import LOSSES
from orchestrator.visits.journey import heard
from orchestrator.visits.run import Run
from shared.claims.training import learning
from shared.claims.visit_end import rose_too_far
from shared.errors import GputError
from shared.protocol.training import TrainingFact
from shared.service.statements import insert_rows
from shared.wire.base import Wire
from shared.wire.gpu import Evaluate, Poll, Train
from shared.wire.gpu_answers import WorkState

POLL_MS = 10_000
Beside = Callable[[Run], Awaitable[None]]


class WorkFailed(GputError):
    """A work ended in the GPU with a reason of its own, for instance a record out of range."""

    status, default_code, title = 409, "work-failed", "Work failed"
    visit: str | None = None  # whose records a tour's training failed on, where it was one visit's


@dataclass(frozen=True)
class Verdict:
    """Whether the trained model is accepted, and the held-out losses around it."""

    accepted: bool
    reason: str
    before: float | None
    after: float | None


async def work(
    run: Run, command: Wire, key: str, *, follow: bool, of: tuple[str, str] | None = None, beside: Beside | None = None
) -> tuple[WorkState, list[tuple[int, float]]]:
    """Start a work and follow it to its end; its losses as they came.

    Args:
        of: whose they are (visit, holder), if not the open visit's.
        beside: done once the work is on its way.
    """
    losses: list[tuple[int, float]] = []
    poll = Poll(work=key, wait_ms=POLL_MS)
    begun = asyncio.ensure_future(run.life.batch([command, poll]))
    begun.add_done_callback(heard)
    await asyncio.sleep(0)  # so that the frame is on its way
    if beside is not None:
        await beside(run)
    run.outbox.say()
    state = (await begun).answer(1, WorkState)
    await run.written()
    while True:
        losses.extend(state.losses)
        if follow and state.losses:
            _show(run, state.losses, of or (run.visit.id, run.visit.holder))
        if state.state != "running":
            return state, losses
        poll = Poll(work=key, after=state.steps_done, wait_ms=POLL_MS)
        state = (await run.life.batch([poll])).answer(0, WorkState)


def _show(run: Run, losses: list[tuple[int, float]], of: tuple[str, str]) -> None:
    visit, holder = of
    for step, loss in losses:
        fact, number = run.shown
        now = run.book.durable.seq
        run.shown = (now, number + 1 if fact == now else 1)
        run.losses.append((*run.shown, {"visit": visit, "holder": holder, "step": step, "loss": loss}))
    run.book.announce()


async def train(run: Run, beside: Beside) -> WorkState:
    """Train on the visit's buffer, and do something else meanwhile; the fact is staged.

    Raises:
        WorkFailed: the GPU refused the data or the program failed. Unavailable: the GPU is gone.
    """
    visit = run.visit
    run.losses.clear()
    key = f"{visit.id}/train"
    command = Train(
        work=key,
        visit=visit.id,
        region=visit.region,
        records=visit.records,
        first_step=visit.first_step,
        steps=visit.steps,
    )
    state, losses = await work(run, command, key, follow=True, beside=beside)
    if state.state == "failed":
        raise WorkFailed(state.detail or "the work failed", code=state.code)
    size = _size(run, state)
    run.book.stage(
        new_fact(
            TrainingFact.TRAINED, visit=visit.id, seconds=state.seconds, mean_loss=state.loss, finite=state.finite,
            update_norm=state.update_norm, update_size=size if math.isfinite(size) else None,
            steps_done=state.steps_done, losses_released=bool(losses),
        ),
        *([losses_row(run, losses, (visit.id, visit.holder))] if losses else []),
    )  # fmt: skip
    return state


def _size(run: Run, trained: WorkState) -> float:
    """As `update_size`; what is no number counts as without bound. Where gradients add up: norm of the visit's, per batch."""
    visit, manifest = run.visit, run.state.manifest
    if manifest.accumulate is not None:
        return update_size(trained.update_norm if trained.update_norm is not None else math.inf, visit.steps)
    spent = learning(manifest.training, visit.first_step, visit.steps, run.state.itinerary.total_steps)
    return update_size(trained.update_norm if trained.update_norm is not None else math.inf, spent)


def losses_row(run: Run, losses: list[tuple[int, float]], of: tuple[str, str]) -> Row:
    """The row that keeps a work's losses; `of`: visit and holder whose they are."""
    session, (visit, holder) = run.state.id, of
    rows = [{"session": session, "visit": visit, "step": step, "holder": holder, "loss": loss} for step, loss in losses]

    def write(connection: Connection) -> None:
        insert_rows(connection, LOSSES, rows)

    return write


async def validate(run: Run, trained: WorkState) -> Verdict:
    """Loss finite, the update of a usual size, then the held-out check at the manifest's cadence.

    Raises:
        Unavailable: the GPU is gone.
    """
    before = run.committed.validation
    if not trained.finite or trained.steps_done != run.visit.steps:
        what = "training loss" if run.state.manifest.privacy is None else "update"
        return Verdict(False, f"the {what} is not finite", before, None)
    strange = unusual(_size(run, trained), run.state.updates.values(), run.state.manifest.acceptance)
    if strange:
        return Verdict(False, strange, before, None)
    rule = run.state.manifest.validation
    if rule is None or not _due(run):
        return Verdict(True, "", before, None)
    return await check_held_out(run, f"{run.visit.id}/eval")


async def check_held_out(run: Run, key: str) -> Verdict:
    """Whether the trained model is good enough for the manifest's rule, which there must be.

    Raises:
        WorkFailed: the validation records do not fit the program. Unavailable: the GPU is gone.
    """
    before = run.committed.validation
    after = await held_out_loss(run, key, run.placement.validation_region)
    if after is None:
        return Verdict(False, "the held-out loss is not finite", before, None)
    if rose_too_far(run.state.manifest, before, after):
        return Verdict(False, f"the held-out loss rose from {before} to {after}", before, after)
    return Verdict(True, "", before, after)


def _due(run: Run) -> bool:
    if run.state.manifest.accumulate is not None:
        return False  # the model changes at the tour's end alone
    return run.state.check_due(run.visit.index)


async def held_out_loss(run: Run, key: str, region: int | None) -> float | None:
    """Mean loss over the session's validation region; None if it is not finite or there is no such region.

    Raises:
        WorkFailed: the validation records do not fit the program.
    """
    rule = run.state.manifest.validation
    if rule is None or region is None:
        return None
    state, _ = await work(run, Evaluate(work=key, region=region, records=rule.records), key, follow=False)
    if state.state == "failed":
        raise WorkFailed(state.detail or "the evaluation failed", code=state.code)
    return state.loss if state.finite else None


def accept(run: Run, verdict: Verdict) -> None:
    """Stage the verdict: it is written down before the GPU is told to commit."""
    run.book.stage(
        new_fact(
            TrainingFact.VALIDATED, visit=run.visit.id, validation_before=verdict.before, validation_after=verdict.after
        )
    )
