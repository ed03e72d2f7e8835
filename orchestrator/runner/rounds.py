"""The journey of one life: visits in order, waiting for holders, checkpoints by time, the end. Knows the order, no step's inside."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from orchestrator.gpu_session.checkpoints import Checkpoints, Sealed
from orchestrator.gpu_session.export import export_model
from orchestrator.gpu_session.reading_out import read_out
from orchestrator.holders.arrivals import Recall
from orchestrator.holders.channels import Channel
from orchestrator.ids import new_checkpoint_name
from orchestrator.itinerary import PlannedVisit
from orchestrator.ledger.log import event_leaf
from orchestrator.model_file import ModelFile
from orchestrator.runner.heads import Heads, require_quorum
from orchestrator.runner.pace import CheckpointPace
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import Checkpoint
from orchestrator.sessions.sealed_models import to_release
from orchestrator.sessions.stopping import least_at
from orchestrator.visits.abandon import recall
from orchestrator.visits.collected import collected_tour, let_go
from orchestrator.visits.cycle import run_begun, run_visit
from orchestrator.visits.last_check import last_check
from orchestrator.visits.planning import plan
from orchestrator.visits.run import Run
from orchestrator.visits.tour import end_tour
from shared.claims.layout import plan_memory
from shared.errors import VerificationFailed
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact

RETRY_WAITS_S = (0.0, 0.2, 1.0, 5.0)


class Rounds:
    """Drives one session's visits within one life."""

    def __init__(
        self, run: Run, wishes: Wishes, heads: Heads, checkpoints: Checkpoints, pace: CheckpointPace, model: ModelFile
    ) -> None:
        self._run, self._wishes, self._heads, self._checkpoints = run, wishes, heads, checkpoints
        self._pace, self._model = pace, model
        run.interrupted = lambda: wishes.any or pace.due(run.timer(), self._just_trained)

    async def travel(self) -> None:
        """Visit after visit until the itinerary is done or somebody wishes otherwise.

        Raises:
            Unavailable: the life is over. VerificationFailed, CommandRefused: the session fails.
        """
        run = self._run
        while not self._wishes.any:
            await self._check()
            if run.state.best_unsealed:
                await self.checkpoint()
                continue
            if run.state.learnt_enough and run.state.next_stop() is not None:
                await self._stop_early()
                return
            if run.state.current is not None:
                await run_begun(run)
                await self._checkpoint_if_due()
                continue
            if await collected_tour(run):
                await self._checkpoint_if_due()
                continue
            if run.state.tour_due is not None:
                await end_tour(run, run.state.tour_due)
                await self._checkpoint_if_due()
                continue
            stop = run.state.next_stop()
            if stop is None:
                if await self._finished():
                    return
                continue
            if run.state.spent_in_vain(stop.index):
                await self._skip(
                    stop, "its records have spent their privacy in an attempt whose result was lost", blame=False
                )
                continue
            channel = run.channels.ready(stop.holder)
            if channel is None or run.state.blamed:
                await run.commit()
                channel = await self._await_channel(stop)
            if channel is not None:
                await run_visit(run, stop, channel)
                await self._checkpoint_if_due()
        await self._nothing_open("the session stands still")

    async def _nothing_open(self, reason: str) -> None:
        """What is loaded and whose turn does not come now goes back untrained."""
        run = self._run
        await run.commit()
        if run.state.current is not None:
            await recall(run, Recall(reason, blame=False), run.state.current)
        await let_go(run, run.state.gathered, reason, again=True)

    async def _stop_early(self) -> None:
        """The held-out loss has not fallen for as long as the manifest waits: say so in the log, and finish."""
        run, state = self._run, self._run.state
        await self._nothing_open("the session has learnt enough")
        if not state.stopped:
            details: dict[str, Any] = {"reason": state.learnt_enough, "position": state.position}
            leaf = event_leaf(state.tree, state.id, SessionFact.STOPPED_EARLY.value, details)
            run.book.stage(new_fact(SessionFact.STOPPED_EARLY, **details, leaf=leaf.fact), leaf.row)
            await run.commit()
        await self._finish()

    async def _check(self) -> None:
        """What may change between two visits and ends the session: too few holders, or one whose late word contradicts the log."""
        run = self._run
        self._heads.ask(run.state, run.inboxes)
        await self._heads.check(run.book)
        await require_quorum(run.book)

    async def _await_channel(self, stop: PlannedVisit) -> Channel | None:
        """The stop's channel, once there is one; None when something else must be looked at first, or the stop was skipped."""
        try:
            return await self._channel(stop)
        finally:
            self._wishes.waiting_for = []

    async def _channel(self, stop: PlannedVisit) -> Channel | None:
        run, state = self._run, self._run.state
        wait = RETRY_WAITS_S[min(state.blamed, len(RETRY_WAITS_S) - 1)]
        if wait:
            await self._wait(f"{stop.holder} (attempt {state.attempts + 1}; {state.setback})", wait)
        deadline = run.timer() + state.manifest.lease_s
        while not self._wishes.any and stop.holder in state.active:
            await self._heads.check(run.book)
            run.life.require_whole()
            channel = run.channels.ready(stop.holder)
            if channel is not None:
                return channel
            if run.channels.ask(stop.holder, state.manifest.lease_s):
                run.inboxes.post(stop.holder, kind="channel_wanted", session=state.id)
            left = deadline - run.timer()
            if left <= 0 and state.may_skip(stop.holder):
                await self._skip(stop, f"{stop.holder} opened no channel", blame=True)
                return None
            why = f"channel; {state.setback}" if state.blamed else "channel"
            await self._wait(f"{stop.holder} ({why})", left if left > 0 else state.manifest.lease_s)
        return None

    async def _wait(self, whom: str, seconds: float) -> None:
        changes = self._run.book.changes
        seen = changes.version
        self._run.book.require_open()
        self._wishes.waiting_for = [whom]
        if not self._wishes.any:
            await changes.wait(seen, seconds)

    async def _skip(self, stop: PlannedVisit, reason: str, *, blame: bool) -> None:
        # Planned and recalled in one commit: the GPU never heard of it, and the log says why the stop was passed over.
        run = self._run
        visit = plan(run, stop)
        await recall(run, Recall(reason, blame=blame, skip=True), visit)

    @property
    def _just_trained(self) -> float:
        return self._run.watch.seconds.get("train", 0.0)

    async def _checkpoint_if_due(self) -> None:
        self._pace.trained(self._just_trained)
        # Not while records wait to be trained on: their stops lie behind us, and what they change does not.
        # Nor while the next holder has the GPU already.
        if not self._run.state.gathered and not self._run.gone and self._pace.due(self._run.timer()):
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Seal the last committed model to disk, unless the newest checkpoint holds it already."""
        run, state = self._run, self._run.state
        await run.commit()
        gone = self._checkpoints.gone(state.checkpoints)
        newest = state.checkpoints[-1] if state.checkpoints and not gone else None
        if newest is not None and newest.position == state.position and newest.state == run.committed:
            self._pace.not_needed(run.timer())
            return
        began = run.timer()
        sealed = await read_out(self._seal)
        state_then = replace(sealed.state, batches=run.committed.batches)
        if (sealed.state.model, sealed.state.step) != (run.committed.model, run.committed.step):
            raise VerificationFailed("The GPU sealed another model than the committed one", code="checkpoint-mismatch")
        cost_s = run.timer() - began
        fact = new_fact(
            SessionFact.CHECKPOINTED, name=sealed.name, position=state.position, total=sealed.total,
            model=asdict(state_then), seconds=round(cost_s, 6),
        )  # fmt: skip
        if gone:
            run.book.stage(new_fact(SessionFact.CHECKPOINTS_GONE, checkpoints=[made.name for made in gone]))
        await run.book.record(fact)
        self._checkpoints.prune(state.checkpoints, to_release(state))
        self._pace.made(run.timer(), cost_s)

    async def _seal(self) -> Sealed:
        # Each try under a name of its own: a key seals one state.
        run = self._run
        return await self._checkpoints.write(run.life, new_checkpoint_name(run.entropy), run.committed.validation)

    async def leave_for_successor(self) -> None:
        """The session is about to end: seal what it leaves, if its holders agreed that another may go on with it without some of them. A
        tour's gradients so far are nobody's step: then the checkpoint before them is worth more, and is kept."""
        state = self._run.state
        if state.manifest.continuation == "remaining" and state.committed is not None and not state.committed.batches:
            await self.checkpoint()

    async def _finished(self) -> bool:
        """The model is finished and released; False: it had to be checked first."""
        await self._run.commit()
        if self._run.state.unchecked and self._run.state.manifest.validation is not None:
            await last_check(self._run)
            return False
        await self._finish()
        return True

    async def _finish(self) -> None:
        run, state = self._run, self._run.state
        self._require_best()
        if state.releases_best and state.to_go_back_to is not None:
            await self._go_back_to(state.to_go_back_to)
        else:
            await self.leave_for_successor()
        region = plan_memory(run.program.manifest, state.manifest.training).model
        exported = await read_out(lambda: export_model(run.life, region, self._model, run.committed.model))
        run.book.stage(new_fact(SessionFact.EXPORTED, **asdict(exported), **run.link_bytes()))
        run.book.stage(new_fact(SessionFact.COMPLETED))
        await run.commit()

    def _require_best(self) -> None:
        """Where the best model is to be released, no other is in its place.

        Raises:
            VerificationFailed: code `checkpoint-gone`: the journal knows a least loss, and no sealed model that it was found of.
        """
        state, best = self._run.state, self._run.state.best
        least = least_at(state.checks) if state.releases_best else None
        if least is not None and (best is None or best.position != least):
            raise VerificationFailed(
                "No sealed checkpoint is left of the model of the least held-out loss", code="checkpoint-gone",
                expected=f"the model after stop {least}", got="none" if best is None else f"that after stop {best.position}",
            )  # fmt: skip

    async def _go_back_to(self, best: Checkpoint) -> None:
        """The GPU takes the model of the least held-out loss from its sealed checkpoint; what is intended is written down first."""
        run, state = self._run, self._run.state
        if not state.chosen:
            details: dict[str, Any] = {"checkpoint": best.name, "position": best.position, "model": best.state.model}
            leaf = event_leaf(state.tree, state.id, SessionFact.BEST_CHOSEN.value, details)
            run.book.stage(new_fact(SessionFact.BEST_CHOSEN, **details, leaf=leaf.fact), leaf.row)
            await run.commit()
        await self._checkpoints.restore(run.life, best)
        run.book.stage(new_fact(SessionFact.BEST_RESTORED, checkpoint=best.name))

    async def pause(self) -> None:
        """Checkpoint, then stand still; the GPU keeps the session."""
        await self.checkpoint()
        if (
            self._wishes.pause and self._run.state.phase is SessionPhase.RUNNING
        ):  # it may have been taken back meanwhile
            await self._run.book.record(new_fact(SessionFact.PAUSED, Role.OWNER, party=self._wishes.by))
        self._wishes.pause = False
