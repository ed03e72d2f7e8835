"""Steps 11 and 12, epilogue and close: commit or roll back, scrub with read-back, device statement, receipt. Knows no HTTP route."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from orchestrator.gpu_session.life import Batch
from orchestrator.gpu_session.placement import model_state
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import ModelState
from orchestrator.sessions.state import SessionState
from orchestrator.visits.granting import Wanted, granted, to_grant
from orchestrator.visits.receipts import check_statement, make_receipt
from orchestrator.visits.run import Run
from orchestrator.visits.sealing_ahead import installed, to_install
from orchestrator.visits.training import Verdict
from shared.canonical.zeros import zeros_digest
from shared.errors import VerificationFailed
from shared.protocol.training import TrainingFact
from shared.wire.gpu import CloseVisit, Commit, InstallGrant, RollBack, Scrub
from shared.wire.gpu_answers import Committed, Scrubbed, Statement


def check_scrub(run: Run, scrubbed: Scrubbed, region: int) -> None:
    """The whole region reads back as zeros. Raises: VerificationFailed (code `scrub-incomplete`)."""
    placement = run.placement
    whole = (scrubbed.region, scrubbed.length) == (region, placement.dataset_length)
    zeros = zeros_digest(placement.dataset_length).hex()
    if not whole or scrubbed.digest != zeros:
        raise VerificationFailed("The dataset region does not read back as zeros", code="scrub-incomplete",
                                 expected=zeros, got=scrubbed.digest)  # fmt: skip


async def close(run: Run, verdict: Verdict, wanted: Wanted | None) -> None:
    """Commit the model in the GPU, scrub, close, and grant the visit that follows at once, if one does; all that once the verdict is
    durable, which is being written. The closing facts are staged; the next commit makes them durable.

    Raises:
        CommandRefused, VerificationFailed, Unavailable.
    """
    visit = run.visit
    with run.watch.steps("verdict", "epilogue") as durable:

        async def judged() -> None:
            await run.written()
            durable()

        ahead = to_install(run)
        following = wanted.visit if wanted is not None else None if ahead is None else ahead.visit
        granting = to_grant(run, wanted) if wanted is not None else ()
        installing = () if ahead is None else (InstallGrant(grant=ahead.grant),)
        closing = Commit(work=f"{visit.id}/train"), Scrub(region=visit.region), CloseVisit(visit=visit.id)
        batch = await run.life.batch([*closing, *granting, *installing], behind=judged)
    with run.watch.step("close"):
        if following is not None:
            run.journey.begin(following.holder)
            await asyncio.sleep(0)  # so that the request is on its way while we look at what came of this visit
        check_scrub(run, batch.answer(1, Scrubbed), visit.region)
        committed = batch.answer(0, Committed)
        if committed.step != visit.first_step + visit.steps:
            raise VerificationFailed("The GPU committed another step than it was to reach", code="step-mismatch",
                                     expected=str(visit.first_step + visit.steps), got=str(committed.step))  # fmt: skip
        settle_closed(run, committed, batch.answer(2, Statement).statement, verdict)
        if wanted is not None and granting:
            run.granted = granted(run, wanted, granting, batch)
        elif ahead is not None:
            installed(run, batch)


def settle_closed(run: Run, committed: Committed, statement: bytes, verdict: Verdict) -> None:
    """Stage `scrubbed` and `closed` with the receipt; also used after a restart, when the GPU had finished before us."""
    visit, before = run.visit, run.committed
    known = verdict.after if verdict.after is not None else before.validation
    after = model_state(committed, known)
    check_statement(run, statement, after, outcome="closed")
    run.book.stage(new_fact(TrainingFact.SCRUBBED, visit=visit.id))
    leaf = make_receipt(run, statement, outcome="closed", before=verdict.before, after=verdict.after)
    run.book.stage(
        new_fact(
            TrainingFact.CLOSED, visit=visit.id, leaf=leaf.fact, model=asdict(after),
            durations=run.watch.reading(), **run.link_bytes(),
        ),
        leaf.row,
    )  # fmt: skip


async def reject(run: Run, verdict: Verdict) -> None:
    """Roll back, scrub, and give the holder its receipt with outcome `rejected`; the session goes on (design 4.3).

    Raises:
        VerificationFailed: the roll-back did not end at the committed model (law L8).
    """
    visit = run.visit
    with run.watch.step("epilogue"):
        batch = await run.life.batch([RollBack(), Scrub(region=visit.region), CloseVisit(visit=visit.id)])
    with run.watch.step("close"):
        check_rolled_back(run, batch)
        check_scrub(run, batch.answer(1, Scrubbed), visit.region)
        statement = batch.answer(2, Statement).statement
        check_statement(run, statement, run.committed, outcome="rejected")
        leaf = make_receipt(run, statement, outcome="rejected", before=verdict.before, after=verdict.after)
        run.book.stage(
            new_fact(
                TrainingFact.REJECTED, visit=visit.id, reason=verdict.reason, leaf=leaf.fact,
                validation_before=verdict.before, validation_after=verdict.after, durations=run.watch.reading(),
                quarantine=worn_out(run.state, visit.holder),
            ),
            leaf.row,
        )  # fmt: skip


def worn_out(state: SessionState, holder: str) -> bool:
    """Whether one more rejected visit makes this holder one that is visited no more: only where the others are a quorum."""
    limit = state.manifest.acceptance.quarantine_after
    return limit is not None and state.rejected.get(holder, 0) + 1 >= limit and state.may_skip(holder)


def check_rolled_back(run: Run, batch: Batch, index: int = 0) -> ModelState:
    """The GPU is back at the last committed model. Raises: VerificationFailed (code `roll-back-failed`)."""
    answer, committed = batch.answer(index, Committed), run.committed
    if not committed.reads_as(answer) or answer.step != committed.step:
        raise VerificationFailed("The GPU did not roll back to the last committed model", code="roll-back-failed",
                                 expected=committed.model, got=answer.model)  # fmt: skip
    return committed
