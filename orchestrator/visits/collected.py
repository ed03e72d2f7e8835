"""A collected tour: the GPU trains on a shuffled mixture of all the round's visits, is judged, and all of it is scrubbed. Knows no route.

Its visits are verified and wait, each in a region of its own; from here on they share one training phase. What is not kept is rolled back
as one. No holder has the GPU meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from orchestrator.gpu_session.life import Batch
from orchestrator.gpu_session.placement import model_state
from orchestrator.sessions.acceptance import unusual, update_size
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import ModelState
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.abandon import abandoned
from orchestrator.visits.epilogue import check_rolled_back, check_scrub, worn_out
from orchestrator.visits.outages import require_again
from orchestrator.visits.receipts import check_statement, make_receipt
from orchestrator.visits.run import Run, Stopwatch
from orchestrator.visits.tour import check_due
from orchestrator.visits.training import Verdict, WorkFailed, check_held_out, losses_row, work
from shared.claims.receipt import Mixed
from shared.claims.training import learning
from shared.errors import VerificationFailed
from shared.protocol.mixture import mixture_seed
from shared.protocol.training import TrainingFact
from shared.wire.base import Wire
from shared.wire.gpu import CloseVisit, Commit, RollBack, Scrub, TourPart, TrainTour
from shared.wire.gpu_answers import COMPUTE_OUTAGES, Committed, Scrubbed, Statement, WorkState

NOBODYS = ""
"""Holder of losses that are over several holders' records: the owner alone may see them."""


@dataclass(frozen=True)
class Tour:
    """The visits of one round that are trained on together, by stop, and where training stands before."""

    round: int
    seed: int
    visits: tuple[VisitState, ...]
    first_step: int

    @property
    def key(self) -> str:
        """Idempotency key of its works: its last visit is no other attempt's."""
        return f"{self.visits[-1].id}/tour"

    @property
    def steps(self) -> int:
        """Training steps: as many as its visits would have had one by one."""
        return sum(visit.steps for visit in self.visits)

    @property
    def ids(self) -> list[str]:
        """Of its visits."""
        return [visit.id for visit in self.visits]

    def mixed(self, visit: VisitState) -> Mixed:
        """What the device must state of the mixture in this visit's statement."""
        before = self.visits[: self.visits.index(visit)]
        return Mixed(
            round=self.round, seed=self.seed, visits=len(self.visits), records=sum(v.records for v in self.visits),
            first=sum(v.records for v in before),
        )  # fmt: skip


def tour_of(run: Run) -> Tour:
    """The visits that wait in the GPU, as one."""
    visits = tuple(run.state.gathered)
    seed = mixture_seed(run.state.manifest.training.seed, visits[0].round)
    return Tour(visits[0].round, seed, visits, run.committed.step)


async def collected_tour(run: Run) -> bool:
    """Let go of visits whose holder takes no part any more, or train on the round, if all of its visits are there; whether either was done.

    Raises:
        As `let_go` and `train_tour`.
    """
    gone = [visit for visit in run.state.gathered if visit.holder not in run.state.active]
    if gone:
        await let_go(run, gone, "its holder takes no part any more", again=False)
        return True
    if run.state.collected is None:
        return False
    await train_tour(run, tour_of(run))
    return True


async def let_go(run: Run, visits: Sequence[VisitState], reason: str, *, again: bool, outage: bool = False) -> None:
    """Scrub visits that wait to be trained on, and recall them. `again`: their stops are visited once more. `outage`: as `abandoned`.

    Raises:
        VerificationFailed: a region does not read back as zeros. CommandRefused, Unavailable.
    """
    visits = tuple(visits)  # the state's own list changes with each fact
    if not visits:
        return
    check_scrubs(run, await run.life.batch([Scrub(region=visit.region) for visit in visits]), visits)
    for visit in visits:
        abandoned(run, visit, TrainingFact.RECALLED, reason, blame=False, again=again, outage=outage)
    await run.commit()


def check_scrubs(run: Run, batch: Batch, visits: Sequence[VisitState]) -> None:
    """The region of each of these visits, scrubbed in this order, reads back as zeros. Raises: VerificationFailed."""
    proofs = [answer for answer in batch.answers if isinstance(answer, Scrubbed)]
    for proof, visit in zip(proofs, visits, strict=True):
        check_scrub(run, proof, visit.region)


async def train_tour(run: Run, tour: Tour) -> None:
    """The training phase of all the tour's visits, to their close or to their rejection as one; the last facts are staged.

    Raises:
        CommandRefused, VerificationFailed, Unavailable. WorkFailed: as `require_again`.
    """
    run.watch, guilty = Stopwatch(run.timer), None
    try:
        with run.watch.step("train"):
            trained = await _train(run, tour)
        with run.watch.step("validate"):
            verdict = await _judge(run, tour, trained)
    except WorkFailed as error:
        if error.code in COMPUTE_OUTAGES:
            await _repeat(run, tour, error)
            return
        verdict, guilty = Verdict(False, f"{error.code}: {error.detail}", run.committed.validation, None), error.visit
    if not verdict.accepted:
        await _reject(run, tour, verdict, guilty)
        return
    with run.watch.step("verdict"):
        run.book.stage(
            new_fact(
                TrainingFact.VALIDATED,
                visits=tour.ids,
                validation_before=verdict.before,
                validation_after=verdict.after,
            )
        )
        await run.commit()
    with run.watch.step("epilogue"):
        batch = await run.life.batch([Commit(work=f"{tour.key}/train"), *_epilogue(tour)])
    check_scrubs(run, batch, tour.visits)
    settle_tour_closed(run, tour, batch.of(Committed), batch, verdict)


async def _repeat(run: Run, tour: Tour, error: WorkFailed) -> None:
    """The compute processes died under the tour's work: nobody is to blame, and all of its visits are made once more."""
    require_again(run, tour.visits, error)
    check_rolled_back(run, await run.life.batch([RollBack()]))
    await let_go(run, tour.visits, f"{error.code}: {error.detail}", again=True, outage=True)


async def _train(run: Run, tour: Tour) -> WorkState:
    run.losses.clear()
    parts = [TourPart(visit=visit.id, region=visit.region, records=visit.records) for visit in tour.visits]
    key, of = f"{tour.key}/train", (tour.ids[-1], NOBODYS)
    command = TrainTour(
        work=key, round=tour.round, seed=tour.seed, parts=parts, first_step=tour.first_step, steps=tour.steps
    )
    state, losses = await work(run, command, key, follow=True, of=of)
    if state.state == "failed":
        failed = WorkFailed(state.detail or "the work failed", code=state.code)
        failed.visit = state.visit
        raise failed
    size = _size(run, tour, state)
    run.book.stage(
        new_fact(
            TrainingFact.TRAINED, visits=tour.ids, seconds=state.seconds, finite=state.finite, update_norm=state.update_norm,
            update_size=size if math.isfinite(size) else None, steps_done=state.steps_done, losses_released=bool(losses),
            seed=tour.seed,
        ),
        *([losses_row(run, losses, of)] if losses else []),
    )  # fmt: skip
    return state


def _size(run: Run, tour: Tour, trained: WorkState) -> float:
    """As `update_size`; what is no number counts as without bound."""
    spent = learning(run.state.manifest.training, tour.first_step, tour.steps, run.state.itinerary.total_steps)
    return update_size(trained.update_norm if trained.update_norm is not None else math.inf, spent)


async def _judge(run: Run, tour: Tour, trained: WorkState) -> Verdict:
    """As a visit is judged: loss finite, the update of a usual size, then the held-out check at the manifest's cadence."""
    before, manifest = run.committed.validation, run.state.manifest
    if not trained.finite or trained.steps_done != tour.steps:
        return Verdict(False, "the training loss is not finite", before, None)
    strange = unusual(_size(run, tour, trained), run.state.updates.values(), manifest.acceptance)
    if strange:
        return Verdict(False, strange, before, None)
    if manifest.validation is None or not check_due(run, tour.round):
        return Verdict(True, "", before, None)
    return await check_held_out(run, f"{tour.key}/eval")


def _epilogue(tour: Tour) -> list[Wire]:
    scrubs: list[Wire] = [Scrub(region=visit.region) for visit in tour.visits]
    return scrubs + _statements(tour)


def _statements(tour: Tour) -> list[Wire]:
    return [CloseVisit(visit=visit.id) for visit in tour.visits]


def settle_tour_closed(run: Run, tour: Tour, committed: Committed, batch: Batch, verdict: Verdict) -> None:
    """Stage the tour's end: everything scrubbed, each visit closed with its receipt; also after a restart, when the GPU had finished first.

    Args:
        batch: with the device's statement of each visit, in order.
    Raises:
        VerificationFailed: the GPU stands at another step, or states something else.
    """
    if committed.step != tour.first_step + tour.steps:
        raise VerificationFailed("The GPU committed another step than it was to reach", code="step-mismatch",
                                 expected=str(tour.first_step + tour.steps), got=str(committed.step))  # fmt: skip
    known = verdict.after if verdict.after is not None else run.committed.validation
    after = model_state(committed, known)
    statements = _checked(run, tour, batch, after, outcome="closed")
    run.book.stage(new_fact(TrainingFact.SCRUBBED, visits=tour.ids, tour_durations=run.watch.reading()))
    for visit, statement in zip(tour.visits, statements, strict=True):
        leaf = make_receipt(run, statement, outcome="closed", before=verdict.before, after=verdict.after, visit=visit)
        run.book.stage(
            new_fact(TrainingFact.CLOSED, visit=visit.id, leaf=leaf.fact, model=asdict(after), **run.link_bytes()),
            leaf.row,
        )


def _checked(run: Run, tour: Tour, batch: Batch, after: ModelState, *, outcome: str) -> list[bytes]:
    statements = [answer.statement for answer in batch.answers if isinstance(answer, Statement)]
    for visit, statement in zip(tour.visits, statements, strict=True):
        check_statement(run, statement, after, outcome=outcome, visit=visit, mixed=tour.mixed(visit))
    return statements


async def settle_tour_restarted(run: Run, committed: Committed) -> None:
    """After a restart: the GPU had committed the accepted tour before the old life ended; opening the new one scrubbed its regions.

    Raises:
        As `settle_tour_closed`.
    """
    tour = tour_of(run)
    details = tour.visits[-1].details
    verdict = Verdict(True, "", details.get("validation_before"), details.get("validation_after"))
    settle_tour_closed(run, tour, committed, await run.life.batch(_statements(tour)), verdict)


async def _reject(run: Run, tour: Tour, verdict: Verdict, guilty: str | None) -> None:
    """Roll back as one, scrub everything, and give each holder its receipt with outcome `rejected`; the next round goes on from there.

    Raises:
        VerificationFailed: the roll-back did not end at the committed model (law L8).
    """
    with run.watch.step("epilogue"):
        batch = await run.life.batch([RollBack(), *_epilogue(tour)])
    check_rolled_back(run, batch)
    check_scrubs(run, batch, tour.visits)
    statements = _checked(run, tour, batch, run.committed, outcome="rejected")
    for visit, statement in zip(tour.visits, statements, strict=True):
        leaf = make_receipt(run, statement, outcome="rejected", before=verdict.before, after=verdict.after, visit=visit)
        blame = visit.id == guilty
        run.book.stage(
            new_fact(
                TrainingFact.REJECTED, visit=visit.id, reason=verdict.reason, leaf=leaf.fact, blame=blame,
                validation_before=verdict.before, validation_after=verdict.after, tour_durations=run.watch.reading(),
                quarantine=blame and worn_out(run.state, visit.holder),
            ),
            leaf.row,
        )  # fmt: skip
