"""Ways out of a visit: recalled, repeated and quarantined. Each ends in a scrub before that memory is granted again. Knows no HTTP route.

Every way out is a leaf of the log, so that no repeat can be hidden (design 4.3).
"""

from __future__ import annotations

from typing import Any

from orchestrator.gpu_session.ending import end_session
from orchestrator.gpu_session.life import CommandRefused
from orchestrator.holders.arrivals import Recall
from orchestrator.ledger.log import event_leaf
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import TableFact, new_fact
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.epilogue import check_rolled_back, check_scrub
from orchestrator.visits.outages import require_again
from orchestrator.visits.returning import check_measured, refused_by_gpu
from orchestrator.visits.run import Run
from orchestrator.visits.ways import way
from shared.errors import Conflict, GputError, VerificationFailed
from shared.names import VisitPhase
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from shared.wire.gpu import Drain, Measure, OpenEpoch, RollBack, Scrub, UploadProgram
from shared.wire.gpu_answers import EpochOpened, Measured, Scrubbed

BROKEN = ("integrity-broken", "committed-copy-changed", "roll-back-failed")
"""Codes that say that something in GPU memory is not what was put there."""
_BEFORE_FENCE = (VisitPhase.GRANTED, VisitPhase.AWAY, VisitPhase.RETURNED)


def abandoned(
    run: Run, visit: VisitState, fact: TableFact, reason: str, *, blame: bool, again: bool, quarantine: bool = False, outage: bool = False,
    broken: bool = False,
) -> None:  # fmt: skip
    """Stage the fact with its leaf. `quarantine`: the holder is visited no more. `outage`: the compute processes died under it. `broken`:
    the GPU's memory was not what was put there.

    The watch's reading goes with the visit under way only: what was planned ahead, or waits in the GPU, spent none of that.
    """
    taken: dict[str, Any] = {"durations": run.watch.reading()} if run.state.current is visit else {}
    forsaken(
        run.book,
        visit,
        fact,
        reason,
        blame=blame,
        again=again,
        quarantine=quarantine,
        outage=outage,
        broken=broken,
        **taken,
    )


def forsaken(
    book: Book, visit: VisitState, fact: TableFact, reason: str, *, blame: bool, again: bool, quarantine: bool = False, **more: Any,
) -> None:  # fmt: skip
    """As `abandoned`, also while no life stands. `more`: what else the fact says."""
    state = book.state
    details = {"visit": visit.id, "index": visit.index, "attempt": visit.attempt, "reason": reason, "again": again,
               **({"quarantine": True} if quarantine else {})}  # fmt: skip
    leaf = event_leaf(state.tree, state.id, fact.value, details)
    book.stage(
        new_fact(
            fact, visit=visit.id, reason=reason, blame=blame, again=again, quarantine=quarantine, leaf=leaf.fact, **more
        ),
        leaf.row,
    )


def forsake_open(book: Book, reason: str) -> None:
    """Stage that the visits which a life left open end with their session, each as a leaf of its log."""
    for visit in book.state.open_visits:
        forsaken(book, visit, way_out(visit), reason, blame=False, again=True)


def way_out(visit: VisitState, *, lost: bool = False) -> TableFact:
    """The fact that ends an open visit, in whichever phase; `lost`: the GPU was reset under it."""
    if visit.training is None:
        return VisitFact.LOST if lost else VisitFact.RECALLED
    return TrainingFact.LOST if lost else TrainingFact.RECALLED


async def recall(run: Run, why: Recall, visit: VisitState) -> None:
    """Take the GPU back from a visit that will not be trained; repeat the visit, or skip it where the quorum allows.

    Raises:
        VerificationFailed: the region does not read back as zeros. CommandRefused, Unavailable.
    """
    reason = why.reason
    opened_only = run.drawn is not None and run.drawn.visit is visit
    if opened_only or (run.granted is not None and run.granted.visit is visit):
        run.granted = run.drawn = None  # of the two there is one at a time
    run.arrivals.forget(visit.id)
    run.inboxes.withdraw(visit.holder, run.state.id, ("offer",))
    if opened_only:  # its key opens nothing; another visit's records may lie in the region
        ours = run.entropy(32)
        batch = await run.life.batch([OpenEpoch(epoch=visit.fence_epoch, entropy=ours, kills=[visit.epoch])])
        run.life.draw(visit.fence_epoch, ours, batch.answer(0, EpochOpened).entropy)
    elif visit.phase in _BEFORE_FENCE:
        await run.journey.back()
        ours = run.entropy(32)
        batch = await run.life.batch(
            [OpenEpoch(epoch=visit.fence_epoch, entropy=ours, kills=[visit.epoch]), Drain(), Scrub(region=visit.region)]
        )
        opened = batch.answer(0, EpochOpened)
        run.life.draw(visit.fence_epoch, ours, opened.entropy)
        check_scrub(run, batch.answer(2, Scrubbed), visit.region)
        told = refused_by_gpu(visit, next((c for c in opened.fenced if c.epoch == visit.epoch), None))
        reason = "; ".join(filter(None, (told, reason)))
    elif visit.phase is VisitPhase.FENCED:
        check_scrub(run, (await run.life.batch([Scrub(region=visit.region)])).answer(0, Scrubbed), visit.region)
    # Whatever the key was used for besides. And where others' records wait, their training may be next, without another fence (law L3).
    if visit.phase is not VisitPhase.PLANNED and (run.travel.whole_gpu or run.state.gathered):
        await _upload_again(run)
        await _go_back_from(run, visit, VisitFact.RECALLED, reason)
    # Who restarts at every offer, for whatever reason, would else have the session to itself.
    blame = why.blame or (why.own and run.state.current is visit and run.state.attempts >= run.visit_attempts)
    abandoned(run, visit, VisitFact.RECALLED, reason, blame=blame, again=_again(run, why, visit, blame))
    await run.commit()


def _again(run: Run, why: Recall, visit: VisitState, blame: bool) -> bool:
    """Whether the stop is tried again: not when its holder has failed often enough and the others are a quorum."""
    state = run.state
    if why.skip or visit.holder not in state.active:
        return False
    worn_out = blame and state.blamed + 1 >= run.visit_attempts
    return not (worn_out and state.may_skip(visit.holder))


async def quarantine(run: Run, error: GputError) -> None:
    """Something is not what was committed: roll back, scrub, and insist that everything is whole again.

    Where the holder's key commanded the whole GPU, the holder is to blame: in the end it is visited no more, where the quorum allows.

    Raises:
        VerificationFailed: it is not, or that happened too often (the session fails). Conflict: as `go_back`.
    """
    visit = run.visit
    fact = VisitFact.QUARANTINED if visit.training is None else TrainingFact.QUARANTINED
    await _go_back_from(run, visit, fact, error.detail)
    _broke(run, visit, fact, error.detail)
    await run.commit()


def _broke(run: Run, visit: VisitState, fact: TableFact, reason: str) -> None:
    """Stage that the GPU's memory did not come back from this visit as it went. What counts are such ends in a row at one holder's visits:
    other ends are no reason to distrust anybody, and neither is a checkpoint that had to be restored in between one to forget.

    Raises:
        VerificationFailed: it happened as often as a visit is tried, and nobody can be left out.
    """
    state, breaks = run.state, run.state.breaks.get(visit.holder, 0) + 1
    blame, worn_out = run.travel.whole_gpu, breaks >= run.visit_attempts
    if worn_out and not (blame and state.may_skip(visit.holder)):
        raise VerificationFailed(
            f"The GPU's integrity broke {breaks} times in a row at {visit.holder}'s visits: {reason}",
            code="integrity-broken",
        )
    abandoned(run, visit, fact, reason, blame=blame, again=not worn_out, quarantine=worn_out, broken=True)


async def repeat(run: Run, error: GputError) -> None:
    """The compute processes died under the visit's work, for which nobody is to blame: roll back, scrub, and visit once more with the same
    records, from the same model.

    Raises:
        WorkFailed: as `require_again`. Otherwise as `go_back`.
    """
    visit = run.visit
    require_again(run, (visit,), error)
    await go_back(run)
    reason = f"{error.code}: {error.detail}"
    abandoned(run, visit, TrainingFact.RECALLED, reason, blame=False, again=True, outage=True)
    await run.commit()


async def _upload_again(run: Run) -> None:
    upload = UploadProgram(length=len(run.archive), records=len(run.archive_records))
    await run.life.batch([upload], run.archive_records)


async def go_back(run: Run) -> None:
    """Roll back to the committed model, scrub the visit's region, and have everything read back.

    Raises:
        VerificationFailed, CommandRefused: something is not what was committed even so.
        Conflict: code `gpu-emptied`: the same where a holder could have done it.
    """
    try:
        await _rolled_back(run)
    except (CommandRefused, VerificationFailed) as error:
        await empty_if_broken(run, error)
        raise


async def _go_back_from(run: Run, visit: VisitState, fact: TableFact, reason: str) -> None:
    """As `go_back`, from a visit whose holder has to answer for it: that is written down before the GPU is wiped, and so outlives the life.

    Raises:
        As `go_back`, and as `_broke`.
    """
    try:
        await _rolled_back(run)
    except (CommandRefused, VerificationFailed) as error:
        if run.travel.whole_gpu and error.code in BROKEN:
            _broke(run, visit, fact, "; ".join(dict.fromkeys((reason, error.detail))))
            await run.commit()
        await empty_if_broken(run, error)
        raise


async def _rolled_back(run: Run) -> None:
    nonce = run.entropy(32)
    commands = [RollBack(), Scrub(region=run.visit.region), *way(run).after_fence, Measure(nonce=nonce)]
    batch = await run.life.batch(commands)
    check_rolled_back(run, batch)
    check_scrub(run, batch.of(Scrubbed), run.visit.region)
    check_measured(run, batch.of(Measured), nonce)
    way(run).check(run, batch)


async def empty_if_broken(run: Run, error: GputError) -> None:
    """Where a holder's key commanded the whole GPU, and broke the committed copy or the held-out records too: wipe it. So also where the
    old life ended between two parts of a checkpoint that it put back. The next life fills it from the newest checkpoint.

    That nothing is expected there any more is written down first, with what was staged: should this life break here, or the GPU be unable
    to count that it was emptied, the next one takes it for empty, and wipes it if it is not.

    Raises:
        Conflict: code `gpu-emptied`: this life is over.
    """
    if error.code != "no-model" and not (run.travel.whole_gpu and error.code in BROKEN):
        return
    run.book.stage(new_fact(SessionFact.UNPLACED))
    await run.commit()
    await end_session(run.life)
    raise Conflict(
        f"The GPU's memory was not to be trusted any more and was wiped: {error.detail}", code="gpu-emptied"
    ) from error
