"""The end of a tour of accumulated gradients: the GPU steps, the orchestrator judges, and keeps it or drops the tour as one.

No records are in the GPU then, and no holder has it. Knows no HTTP route.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import asdict

from orchestrator.gpu_session.placement import model_state
from orchestrator.ledger.log import event_leaf
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import JudgedTour
from orchestrator.visits.epilogue import check_rolled_back, check_scrub
from orchestrator.visits.receipts import check_tour_statement
from orchestrator.visits.run import Run, Stopwatch
from orchestrator.visits.tour_failures import tour_failed
from orchestrator.visits.training import WorkFailed, held_out_loss, work
from shared.claims.layout import require_named
from shared.claims.receipt import TourStatement
from shared.claims.visit_end import rose_too_far
from shared.errors import ProtocolViolation, VerificationFailed
from shared.protocol.session import SessionFact
from shared.wire.gpu import Commit, EndTour, RollBack, Scrub
from shared.wire.gpu_answers import Committed, Scrubbed, WorkState


async def end_tour(run: Run, round_number: int) -> None:
    """One step with the mean gradient of the round's visits, kept or dropped with all of them; the facts are staged.

    Raises:
        CommandRefused, VerificationFailed. Unavailable: also if the work failed: the life is over. WorkFailed `tour-failed`: too often.
    """
    run.watch = Stopwatch(run.timer)
    await run.commit()
    key = f"{run.state.id}/tour/{run.committed.step}/{run.life.number}"
    try:
        await _end(run, round_number, key)
    except WorkFailed as error:
        raise await tour_failed(run, round_number, error) from error


async def _end(run: Run, round_number: int, key: str) -> None:
    with run.watch.step("train"):
        ended = await _work(run, f"{key}/step", round_number, step=True)
    with run.watch.step("validate"):
        judged = await _judge(run, ended, key, round_number)
    run.book.stage(
        new_fact(
            SessionFact.TOUR_JUDGED, round=round_number, work=judged.work, stepped=judged.stepped, reason=judged.reason,
            validation_before=judged.before, validation_after=judged.after, update_norm=ended.update_norm,
        )
    )  # fmt: skip
    await run.commit()
    if not judged.stepped:
        check_rolled_back(run, await run.life.batch([RollBack()]))
        await _work(run, judged.work, round_number, step=False)
    region = run.placement.dataset_region
    with run.watch.step("epilogue"):
        batch = await run.life.batch([Commit(work=judged.work), Scrub(region=region)])
    check_scrub(run, batch.of(Scrubbed), region)
    _settle(run, judged, batch.of(Committed))


async def settle_tour(run: Run, found: Committed) -> None:
    """After a restart: the GPU had committed the judged end before the old life ended; the facts are staged.

    Args:
        found: what the GPU says is committed.
    Raises:
        VerificationFailed: it is another end than the judged one.
    """
    judged = run.state.judged
    if judged is None:
        raise ProtocolViolation("no tour's end was judged", code="no-tour")
    committed = (await run.life.batch([Commit(work=judged.work)])).answer(0, Committed)
    if (committed.model, committed.optimiser) != (found.model, found.optimiser):
        raise VerificationFailed("The GPU's committed model is not the judged tour's", code="unexplained-model",
                                 expected=committed.model, got=found.model)  # fmt: skip
    _settle(run, judged, committed)


async def _work(run: Run, key: str, round_number: int, *, step: bool) -> WorkState:
    command = EndTour(work=key, round=round_number, batches=run.committed.batches, step=step)
    state, _ = await work(run, command, key, follow=False)
    if state.state == "failed":
        raise WorkFailed(state.detail or "the tour's end failed", code=state.code)
    return state


async def _judge(run: Run, ended: WorkState, key: str, round_number: int) -> JudgedTour:
    """The step is finite, and at the manifest's cadence the held-out loss did not rise by more than it may."""
    before = run.committed.validation
    keep, drop = f"{key}/step", f"{key}/drop"
    if not ended.finite or ended.update_norm is None or not math.isfinite(ended.update_norm):
        return JudgedTour(round_number, drop, False, "the tour's step is not finite", before, None)
    if run.state.manifest.validation is None or not check_due(run, round_number):
        return JudgedTour(round_number, keep, True, "", before, None)
    after = await held_out_loss(run, f"{key}/eval", run.placement.validation_region)
    if after is None:
        return JudgedTour(round_number, drop, False, "the held-out loss is not finite", before, None)
    if rose_too_far(run.state.manifest, before, after):
        return JudgedTour(round_number, drop, False, f"the held-out loss rose from {before} to {after}", before, after)
    return JudgedTour(round_number, keep, True, "", before, after)


def check_due(run: Run, round_number: int) -> bool:
    """Whether a visit of the round is one after which the model is checked; the last round always has one."""
    return run.state.check_due(round_number * len(run.state.manifest.roster))


def _settle(run: Run, judged: JudgedTour, committed: Committed) -> None:
    """Stage the tour's end with its leaf, which carries the device's signed word on it."""
    state, before = run.state, run.committed
    if committed.step != before.step or committed.batches:
        raise VerificationFailed("The GPU did not empty its accumulator at the tour's end", code="step-mismatch",
                                 expected=f"step {before.step}, 0 batches",
                                 got=f"step {committed.step}, {committed.batches} batches")  # fmt: skip
    claims = TourStatement.model_validate({
        "device": state.device, "backend": state.backend, "boot_counter": run.life.boot_counter, "life": run.life.number,
        "session": state.id, "program": state.manifest.program, "round": judged.round, "batches": before.batches,
        "stepped": judged.stepped, "model_before": before.model, "model_after": committed.model,
        "optimiser_before": require_named(before.optimiser), "optimiser_after": require_named(committed.optimiser),
    })  # fmt: skip
    check_tour_statement(run, committed.statement, claims)
    details = {
        "round": judged.round, "stepped": judged.stepped, "reason": judged.reason,
        "statement": b64encode(committed.statement or b"").decode(),
        "validation_before": judged.before, "validation_after": judged.after,
    }  # fmt: skip
    leaf = event_leaf(state.tree, state.id, SessionFact.TOUR_ENDED.value, details)
    known = judged.after if judged.stepped and judged.after is not None else before.validation
    run.book.stage(
        new_fact(
            SessionFact.TOUR_ENDED, round=judged.round, stepped=judged.stepped, reason=judged.reason, leaf=leaf.fact,
            model=asdict(model_state(committed, known)), durations=run.watch.reading(), **run.link_bytes(),
        ),
        leaf.row,
    )  # fmt: skip
