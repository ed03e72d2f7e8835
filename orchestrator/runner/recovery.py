"""From an opened life to a GPU that holds the session's last committed model: place, refill, restore, settle (design 4.5 "Lives").

The GPU's answer decides what happened, the journal what comes next. Knows no holder.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from orchestrator.gpu_session.checkpoints import Checkpoints
from orchestrator.gpu_session.ending import end_session
from orchestrator.gpu_session.life import CommandRefused
from orchestrator.gpu_session.placement import Fill, Placer, check_program
from orchestrator.ledger.log import NewLeaf, event_leaf
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import Checkpoint, ModelState
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.abandon import abandoned, empty_if_broken, way_out
from orchestrator.visits.collected import settle_tour_restarted
from orchestrator.visits.epilogue import settle_closed
from orchestrator.visits.returning import check_measured
from orchestrator.visits.run import Run
from orchestrator.visits.tour import settle_tour
from orchestrator.visits.training import Verdict, held_out_loss
from orchestrator.visits.ways import way
from shared.errors import Conflict, VerificationFailed
from shared.names import TrainingPhase
from shared.protocol.session import SessionFact
from shared.service.logging import get_logger
from shared.wire.gpu import CloseVisit
from shared.wire.gpu_answers import Committed, Measured, Statement

_log = get_logger("runner")


async def first_placement(run: Run, placer: Placer, inherit: Fill | None) -> None:
    """Fill the GPU for the first time; also when it was wiped before anything was trained. `inherit`: brings the predecessor's model in."""
    placed = await placer.place(inherit)
    # One fact, with the loss: whoever commits anything meanwhile would make a placement durable that is never evaluated any more.
    loss = await held_out_loss(
        run, f"{run.state.id}/{run.life.boot_counter}/first-eval", placed.placement.validation_region
    )
    model = replace(placed.model, validation=loss)
    run.book.stage(new_fact(SessionFact.PLACED, placement=asdict(placed.placement), model=asdict(model)))
    await run.commit()


async def restore(run: Run, placer: Placer, checkpoints: Checkpoints, inherit: Fill | None) -> None:
    """The GPU was wiped: abandon the open visit as lost, fill the GPU from the newest checkpoint, and repeat the visits since.

    Raises:
        VerificationFailed: the checkpoint restored something else; `noise-secret-lost`: it is gone, and the noise.
        Conflict: `checkpoint-damaged`: it is set aside, and the next life takes the one before it.
    """
    _abandon(run, run.state.ahead, lost=True)
    _abandon(run, run.state.current, lost=True)
    _abandon_gathered(run, lost=True)
    kept = checkpoints.usable(run.state.checkpoints)
    if kept is None and run.state.manifest.privacy is not None and run.state.checkpoints:
        raise VerificationFailed(
            "The secret that noise was drawn from is lost with the last checkpoint: repeated visits would spend their privacy again",
            code="noise-secret-lost", remedy="Submit a new session; what was spent in this one is in its receipts.",
        )  # fmt: skip
    if kept is None:
        placed = await placer.place(inherit)
        position, model = 0, placed.model
        if run.state.initial is not None:
            _same_model(placed.model, run.state.initial)
            model = replace(placed.model, validation=run.state.initial.validation)
    else:
        placed = await placer.place(lambda: _put_back(run, checkpoints, kept))
        position, model = kept.position, placed.model
    leaf = _restored_leaf(run, kept, position)
    run.book.stage(new_fact(SessionFact.PLACED, placement=asdict(placed.placement), model=None))
    run.book.stage(
        new_fact(
            SessionFact.RESTORED, checkpoint=None if kept is None else kept.name, position=position, model=asdict(model),
            boot_counter=run.life.boot_counter, leaf=leaf.fact,
        ),
        leaf.row,
    )  # fmt: skip
    await run.commit()


async def _put_back(run: Run, checkpoints: Checkpoints, kept: Checkpoint) -> ModelState:
    """The checkpoint is in the GPU. One that is damaged is set aside, and the GPU wiped of what it had of it. That gives nobody a choice
    that he had not: who can damage a file can take it away as well, and the leaf of the log says which one was restored.

    Raises:
        As `restore`.
    """
    try:
        return await checkpoints.restore(run.life, kept)
    except VerificationFailed as error:
        if error.code != "checkpoint-damaged":
            raise
        checkpoints.set_aside(kept.name)
        _log.error("a damaged checkpoint was set aside", session=run.state.id, detail=error.detail)
        await end_session(run.life)  # nothing is `placed` yet: the next life takes the GPU for empty in any case
        raise Conflict(
            f"{error.detail} and was set aside; the session goes on from the one before it, or its first model",
            code=error.code,
        ) from error


def _restored_leaf(run: Run, kept: Checkpoint | None, position: int) -> NewLeaf:
    details = {
        "checkpoint": None if kept is None else kept.name, "position": position, "from": run.state.position,
        "boot_counter": run.life.boot_counter,
    }  # fmt: skip
    return event_leaf(run.state.tree, run.state.id, SessionFact.RESTORED.value, details)


def _same_model(got: ModelState, expected: ModelState) -> None:
    if (got.model, got.optimiser) != (expected.model, expected.optimiser):
        raise VerificationFailed("The initial model came out differently", code="model-mismatch",
                                 expected=expected.model, got=got.model)  # fmt: skip


async def resume(run: Run, placer: Placer) -> None:
    """The GPU still holds the session: program again, model rolled back, and the interrupted visit settled or recalled.

    Raises:
        VerificationFailed: the GPU's committed model is neither the journal's nor the interrupted visit's (`unexplained-model`).
        Conflict: code `gpu-emptied`: the same where the holder of the interrupted visit could have done it; or it holds half a checkpoint.
    """
    try:
        await _resume(run, placer)
    except (CommandRefused, VerificationFailed) as error:
        await empty_if_broken(run, error)
        raise


async def _resume(run: Run, placer: Placer) -> None:
    batch, nonce = await placer.refill(way(run).after_fence)
    committed, measured = batch.of(Committed), batch.of(Measured)
    check_program(measured, run.state.manifest.program)
    known, visit = run.committed, run.state.current
    _abandon(run, run.state.ahead, lost=False)
    if known.reads_as(committed) and committed.step == known.step:
        _abandon(run, visit, lost=False)
        _abandon_gathered(run, lost=False)
    elif run.state.gathered and run.state.gathered[0].training is TrainingPhase.VALIDATED:
        await settle_tour_restarted(run, committed)
    elif (
        visit is not None
        and visit.training is TrainingPhase.VALIDATED
        and committed.step == visit.first_step + visit.steps
    ):
        await _settle(run, committed)
    elif _is_chosen(run, committed):
        run.book.stage(new_fact(SessionFact.BEST_RESTORED, checkpoint=run.state.best.name if run.state.best else None))
    elif run.state.judged is not None and committed.step == known.step:
        await settle_tour(run, committed)
    else:
        raise VerificationFailed(
            "The GPU's committed model is not one that the journal can explain", code="unexplained-model",
            expected=f"{known.model} at step {known.step}", got=f"{committed.model} at step {committed.step}",
        )  # fmt: skip
    check_measured(run, measured, nonce)
    way(run).check(run, batch)
    await run.commit()


def _is_chosen(run: Run, committed: Committed) -> bool:
    """Whether the GPU had gone back to the model to be released before the old life ended."""
    best = run.state.best if run.state.chosen else None
    return best is not None and best.state.weights == (committed.model, committed.optimiser, committed.step)


async def _settle(run: Run, committed: Committed) -> None:
    # The commit had reached the GPU before the old life ended; opening the new life scrubbed the region.
    visit = run.visit
    statement = (await run.life.batch([CloseVisit(visit=visit.id)])).answer(0, Statement).statement
    details = visit.details
    verdict = Verdict(True, "", details.get("validation_before"), details.get("validation_after"))
    settle_closed(run, committed, statement, verdict)


def _abandon_gathered(run: Run, *, lost: bool) -> None:
    for visit in list(run.state.gathered):
        _abandon(run, visit, lost=lost)


def _abandon(run: Run, visit: VisitState | None, *, lost: bool) -> None:
    if visit is not None:
        reason = "the GPU was reset" if lost else "the orchestrator restarted"
        abandoned(run, visit, way_out(visit, lost=lost), reason, blame=False, again=True)
