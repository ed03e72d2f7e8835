"""Steps 6 to 8, report, return and fence, verify. The order is law L3: fence, drain, upload, only then look.

Knows no training and no HTTP route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.gpu_session.life import GPU_RESET, Batch
from orchestrator.holders.arrivals import Recall
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import ReadBack
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.granting import drawn
from orchestrator.visits.run import Run
from orchestrator.visits.sealing_ahead import to_open
from orchestrator.visits.ways import way
from shared.errors import Conflict, GputError, Unavailable, VerificationFailed
from shared.protocol.visit import VisitFact
from shared.service.logging import get_logger
from shared.wire.gpu import Drain, Measure, OpenEpoch, UploadProgram
from shared.wire.gpu_answers import EpochOpened, Measured, ProgramLoaded, RegionContent
from shared.wire.visit import VisitRefusal, VisitReport

LOOK_S, MAX_SILENT = 2.0, 3
"""How often the GPU is looked after while a holder has it, and after how many looks without an answer it counts as gone."""
_log = get_logger("visits")


@dataclass(frozen=True)
class Returned:
    """What the fence found in the region, and the batch whose answers tell what was read back under `nonce`."""

    content: RegionContent | None
    batch: Batch
    nonce: bytes


async def word(run: Run) -> VisitReport:
    """Wait for the holder's report, as long as the lease lasts and the GPU is there that it is to write to; with its word the GPU is on its
    way back, whatever it is.

    Raises:
        Recall: lease expired, refusal, veto, cancellation, or the holder lost its key. Unavailable: the GPU is gone, or was reset.
    """
    visit, silent = run.visit, 0
    if run.leaving():
        raise Recall("the orchestrator is leaving", blame=False)
    while True:
        left = visit.details["expires_at"] - run.clock()
        said = await run.arrivals.word(visit.id, max(0.0, min(left, LOOK_S)), run.journey.turn_back)
        if isinstance(said, VisitRefusal):
            raise Recall(f"{visit.holder} refused: {said.code}: {said.detail}", blame=True)
        if said is not None:
            return said
        if left <= LOOK_S:
            raise Recall("the lease expired", blame=True)
        silent = await _look(run, silent)


async def _look(run: Run, silent: int) -> int:
    """See whether the GPU is still what was let go, and where. A holder without one tries until its lease ends: nobody else would notice.

    Returns:
        How many looks in a row were not answered; a moment without a network ends no life.
    """
    try:
        port = await run.life.require_up()
    except (Unavailable, Conflict) as error:
        if error.code == GPU_RESET or silent + 1 == MAX_SILENT:
            raise
        return silent + 1
    run.journey.found(port)
    return 0


def report(run: Run, said: VisitReport) -> None:
    """Stage the report; its one-time key, if sound, is the next visit's.

    The fence does not wait for it to be durable: whatever was said, the GPU is taken back, and after a crash in between the visit is
    recalled as it would be without a fence.
    """
    visit = run.visit
    run.inboxes.withdraw(visit.holder, run.state.id, ("offer",))
    try:
        run.channels.next_key(visit.holder, said.next_key)
    except GputError as error:
        # The visit's data are not in question; the holder merely must open a new channel.
        _log.warning("next one-time key refused", holder=visit.holder, code=error.code)
        run.channels.close(visit.holder)
    run.book.stage(
        new_fact(
            VisitFact.REPORTED, visit=visit.id, bytes_sent=said.bytes_sent, link=said.link, timers=said.timers.model_dump(mode="json"),
            reported_commitment=said.commitment, reported_records=said.records, reported_length=said.length,
        )
    )  # fmt: skip


async def fence(run: Run) -> Returned:
    """MUX back, which was begun; one batch: fetch what was staged, a new epoch that kills the visit's, drain, upload again, read everything
    back, and open the epoch of the visit behind, where its holder is to seal ahead."""
    visit = run.visit
    ours, nonce = run.entropy(32), run.entropy(32)
    following = to_open(run)

    async def ready() -> None:
        await run.journey.back()
        await run.written()  # the epoch that is opened here is in the journal

    batch = await run.life.batch(
        [
            *way(run).before_fence(visit),
            OpenEpoch(epoch=visit.fence_epoch, entropy=ours, kills=[visit.epoch]),
            Drain(),
            *way(run).after_fence,
            UploadProgram(length=len(run.archive), records=len(run.archive_records)),
            Measure(nonce=nonce),
            *([] if following is None else [following.opening]),
        ],
        run.archive_records,
        behind=ready,
    )
    opened = batch.of(EpochOpened)
    run.life.draw(visit.fence_epoch, ours, opened.entropy)
    if following is not None:
        run.drawn = drawn(run, following, batch.answer(-1, EpochOpened))
    batch.of(ProgramLoaded)
    content = next((c for c in opened.fenced if c.epoch == visit.epoch), None)
    found = (
        {}
        if content is None
        else content.model_dump(mode="json", include={"published", "records", "length", "proof", "commitment"})
    )
    run.book.stage(new_fact(VisitFact.FENCED, visit=visit.id, bytes_sent=visit.details["bytes_sent"], **found))
    return Returned(content, batch, nonce)


def require_active(run: Run) -> None:
    """The visit's holder takes part still. A report does not outweigh a veto: what is not fenced yet is not trained on (design 4.1).

    Raises:
        Recall: it does not.
    """
    if run.visit.holder not in run.state.active:
        raise Recall("its holder takes no part any more", blame=False)


def check_content(run: Run, returned: Returned) -> None:
    """The buffer was published, whole, and is what the holder says it is; and that takes part still.

    Raises:
        Recall: it is not, and the holder is to blame, the model is untouched; or as `require_active`.
    """
    require_active(run)
    visit, content = run.visit, returned.content
    length = visit.records * run.program.manifest.records.record_bytes
    if content is None or not content.published:
        raise Recall(refused_by_gpu(visit, content) or "the buffer was not published", blame=True)
    if (content.records, content.length, content.commitment) != (
        visit.records, length, visit.details["reported_commitment"],
    ):  # fmt: skip
        raise Recall("the buffer does not hold what was reported", blame=True)


def refused_by_gpu(visit: VisitState, content: RegionContent | None) -> str:
    """The GPU's own word on a holder whose grant it ended; empty if it ended none. No holder can talk it away."""
    return (
        ""
        if content is None or content.refusal is None
        else f"the GPU refused {visit.holder}'s data: {content.refusal}"
    )


async def verify(run: Run, returned: Returned) -> None:
    """Law L8: after the fence everything equals the last committed state, by read-back; the fact is being committed.

    The training does not wait until it is durable: a crash rolls the GPU back, and the visit is recalled as it would be without a
    training. It does wait where that would lose count of what was spent of the records' privacy, and where no training comes yet.

    Raises:
        VerificationFailed: something differs (code `integrity-broken`): roll back and quarantine.
    """
    check_measured(run, returned.batch.of(Measured), returned.nonce)
    way(run).check(run, returned.batch)
    # What a visit took that is trained on later is written down here: nothing else of it is its own.
    taken: dict[str, Any] = {"durations": run.watch.reading()} if run.state.manifest.collect == "tour" else {}
    run.book.stage(new_fact(VisitFact.VERIFIED, visit=run.visit.id, **taken))
    if run.state.manifest.privacy is not None or run.state.manifest.collect == "tour":
        await run.commit()
    elif run.drawn is None:  # else it goes with the offer that the next holder gets
        run.begin_commit()


def check_measured(run: Run, measured: Measured, nonce: bytes) -> None:
    """One comparison for every field. Raises: VerificationFailed naming the first that differs."""
    placement, committed = run.placement, run.committed
    expected = {
        "nonce": nonce, "device": run.state.device, "boot_counter": run.life.boot_counter, "life": run.life.number,
        "program": run.state.manifest.program, "code": placement.code, "control": placement.control, "model": committed.model,
    }  # fmt: skip
    for name, value in expected.items():
        got = getattr(measured, name)
        if got != value:
            raise VerificationFailed(f"After the fence the GPU's {name} is not the committed one", code="integrity-broken",
                                     expected=str(value), got=str(got))  # fmt: skip
    if not committed.reads_as(measured):
        raise VerificationFailed(
            "After the fence the GPU's optimiser state is not the committed one", code="integrity-broken",
            expected=_optimiser(committed), got=_optimiser(measured),
        )  # fmt: skip


def _optimiser(state: ReadBack) -> str:
    return state.optimiser or f"version {state.version}"
