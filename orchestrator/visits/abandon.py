"""Ways out of a visit: recalled and quarantined. Each ends in a scrub before that memory is granted again. Knows no HTTP route.

Every way out is a leaf of the log, so that no repeat can be hidden (design 4.3).
"""

from __future__ import annotations

from orchestrator.holders.arrivals import Recall
from orchestrator.ledger.log import event_leaf
from orchestrator.sessions.facts import TableFact, new_fact
from orchestrator.visits.epilogue import check_rolled_back, check_scrub
from orchestrator.visits.returning import check_measured, refused_by_gpu
from orchestrator.visits.run import Run
from shared.errors import GputError, VerificationFailed
from shared.names import VisitPhase
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from shared.wire.gpu import Drain, Measure, OpenEpoch, RollBack, Scrub
from shared.wire.gpu_answers import EpochOpened, Measured, Scrubbed

_BEFORE_FENCE = (VisitPhase.GRANTED, VisitPhase.AWAY, VisitPhase.RETURNED)


def abandoned(run: Run, fact: TableFact, reason: str, *, blame: bool, again: bool, quarantine: bool = False) -> None:
    """Stage the fact with its leaf. `quarantine`: the holder is visited no more."""
    visit, state = run.visit, run.state
    details = {"visit": visit.id, "index": visit.index, "attempt": visit.attempt, "reason": reason, "again": again,
               **({"quarantine": True} if quarantine else {})}  # fmt: skip
    leaf = event_leaf(state.tree, state.id, fact.value, details)
    run.book.stage(
        new_fact(
            fact, visit=visit.id, reason=reason, blame=blame, again=again, quarantine=quarantine, leaf=leaf.fact,
            durations=run.watch.reading()
        ),
        leaf.row,
    )  # fmt: skip


async def recall(run: Run, why: Recall) -> None:
    """Take the GPU back from a visit that will not be trained; repeat the visit, or skip it where the quorum allows.

    Raises:
        VerificationFailed: the region does not read back as zeros. CommandRefused, Unavailable.
    """
    visit, reason = run.visit, why.reason
    run.arrivals.forget(visit.id)
    run.inboxes.withdraw(visit.holder, run.state.id, ("offer",))
    if visit.phase in _BEFORE_FENCE:
        await run.bring_home()
        ours = run.entropy(32)
        batch = await run.life.batch(
            [OpenEpoch(epoch=visit.fence_epoch, entropy=ours, kills=[visit.epoch]), Drain(), Scrub(region=visit.region)]
        )
        opened = batch.answer(0, EpochOpened)
        run.life.draw(visit.fence_epoch, ours, opened.entropy)
        check_scrub(run, batch.answer(2, Scrubbed))
        told = refused_by_gpu(run, next((c for c in opened.fenced if c.epoch == visit.epoch), None))
        reason = "; ".join(filter(None, (told, reason)))
    elif visit.phase is VisitPhase.FENCED:
        check_scrub(run, (await run.life.batch([Scrub(region=visit.region)])).answer(0, Scrubbed))
    abandoned(run, VisitFact.RECALLED, reason, blame=why.blame, again=_again(run, why))
    await run.commit()


def _again(run: Run, why: Recall) -> bool:
    """Whether the stop is tried again: not when its holder has failed often enough and the others are a quorum."""
    state, visit = run.state, run.visit
    if why.skip or visit.holder not in state.active:
        return False
    worn_out = why.blame and state.blamed + 1 >= run.visit_attempts
    return not (worn_out and state.may_skip(visit.holder))


async def quarantine(run: Run, error: GputError) -> None:
    """Something is not what was committed: roll back, scrub, and insist that everything is whole again. A holder at whose visits that
    happens again and again is visited no more, where the others are a quorum.

    Raises:
        VerificationFailed: it is not (the session fails).
    """
    visit, nonce = run.visit, run.entropy(32)
    batch = await run.life.batch([RollBack(), Scrub(region=visit.region), Measure(nonce=nonce)])
    check_rolled_back(run, batch)
    check_scrub(run, batch.answer(1, Scrubbed))
    check_measured(run, batch.answer(2, Measured), nonce)
    last = run.state.attempts >= run.visit_attempts
    if last and not run.state.may_skip(visit.holder):
        raise VerificationFailed(
            f"The GPU's integrity broke {run.state.attempts} times at the same visit: {error.detail}",
            code="integrity-broken",
        )
    fact = VisitFact.QUARANTINED if visit.training is None else TrainingFact.QUARANTINED
    abandoned(run, fact, error.detail, blame=False, again=not last, quarantine=last)
    await run.commit()
