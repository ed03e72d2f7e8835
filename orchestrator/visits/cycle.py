"""One whole visit as its twelve steps in order (design 4.3). Knows the steps' order and their ways out, and nothing else.

Commits: planned · granted, offered · reported, fenced, verified, while the GPU trains · trained, validated, and the next one planned if it
follows at once · and closed, together with the next plan or the next offer, before any holder hears of either. Where the next holder seals
ahead it is planned while this visit is away, and its offer goes with this one's verified row.
"""

from __future__ import annotations

import asyncio

from orchestrator.holders.arrivals import Recall
from orchestrator.holders.channels import Channel
from orchestrator.itinerary import PlannedVisit
from orchestrator.visits.abandon import quarantine, recall, repeat
from orchestrator.visits.ahead import drop_ahead, load_ahead
from orchestrator.visits.epilogue import close, reject
from orchestrator.visits.following import plan_following
from orchestrator.visits.granting import grant, offer
from orchestrator.visits.planning import plan
from orchestrator.visits.returning import Returned, check_content, fence, report, require_active, verify, word
from orchestrator.visits.run import Run, Stopwatch
from orchestrator.visits.sealing_ahead import install, offer_ahead, plan_ahead
from orchestrator.visits.training import Verdict, WorkFailed, accept, train, validate
from shared.errors import VerificationFailed
from shared.names import VisitPhase
from shared.service.logging import bind
from shared.wire.gpu_answers import COMPUTE_OUTAGES


async def run_visit(run: Run, stop: PlannedVisit, channel: Channel) -> None:
    """One visit to one holder, to its close or to one of its ways out.

    Raises:
        Unavailable: GPU, platform or database are gone: the life is over. VerificationFailed: the session must fail.
    """
    visit = plan(run, stop)
    with bind(visit=visit.id, party=visit.holder):
        with run.watch.step("plan"):
            await run.commit()
        with run.watch.step("grant"):
            granted = await grant(run, channel, visit)
        try:
            with run.watch.step("offer"):
                await offer(run, granted)
        except Recall as why:
            await recall(run, why, visit)
            return
        del granted  # the visit key is the holder's now
        plan_ahead(run)
        await _taken_back(run)


async def run_begun(run: Run) -> None:
    """The visit that was loaded or granted ahead, and whose turn it is now, to its close or to one of its ways out.

    Raises:
        As `run_visit`.
    """
    run.watch = Stopwatch(run.timer)
    with bind(visit=run.visit.id, party=run.visit.holder):
        try:
            await _set_out(run)
        except Recall as why:
            await recall(run, why, run.visit)
            return
        plan_ahead(run)
        await _taken_back(run)


async def _set_out(run: Run) -> None:
    """What is still missing before its holder can write. Raises: Recall: it must not."""
    granted, visit, watch = run.granted, run.visit, run.watch
    require_active(run)  # also where its records wait in staging, reported long before the veto
    if granted is not None:
        run.granted = None
        with watch.step("offer"):
            await offer(run, granted)
    elif run.drawn is not None or visit.phase is VisitPhase.PLANNED:
        with watch.step("grant"):
            await install(run)


async def _taken_back(run: Run) -> None:
    try:
        returned = await _returned(run)
    except Recall as why:
        await drop_ahead(run, "the visit before it was recalled")
        await recall(run, why, run.visit)
        return
    try:
        with run.watch.step("verify"):
            await verify(run, returned)
    except VerificationFailed as error:
        await drop_ahead(run, "the visit before it was quarantined")
        await quarantine(run, error)
        return
    if run.state.manifest.collect == "visit":  # else its records wait in the GPU for the tour's training
        await _trained(run)


async def _returned(run: Run) -> Returned:
    """Steps 5 to 7."""
    watch = run.watch
    with watch.step("provision"):
        await run.journey.arrived()
        said = await word(run)
    with watch.step("report"):
        run.journey.turn_back()  # whatever was said
        await asyncio.sleep(0)  # so that the request is on its way while we write it down
        report(run, said)
    with watch.step("fence"):
        returned = await fence(run)
        run.arrivals.forget(run.visit.id)
        check_content(run, returned)
    return returned


async def _trained(run: Run) -> None:
    """Steps 9 to 12."""
    watch = run.watch
    with watch.step("ahead"):
        await load_ahead(run)
    try:
        with watch.step("train"):
            trained = await train(run, offer_ahead)
        run.just_trained = watch.seconds["train"]
        with watch.step("validate"):
            verdict = await validate(run, trained)
    except WorkFailed as error:
        if error.code in COMPUTE_OUTAGES:
            await drop_ahead(run, "the visit before it is repeated")
            await repeat(run, error)
            return
        verdict = Verdict(False, f"{error.code}: {error.detail}", run.committed.validation, None)
    if verdict.accepted:
        with watch.step("verdict"):
            accept(run, verdict)
            wanted = plan_following(run, verdict)
            run.begin_commit()
        await close(run, verdict, wanted)
    else:
        await drop_ahead(run, "the visit before it was not kept")
        await reject(run, verdict)
