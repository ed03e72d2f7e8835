"""What the GPU remembers of works and visits until it is wiped: repeated commands are answered from here. Pure bookkeeping."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from gpu_agent.hardware.compute import Finished
from gpu_agent.hardware.hbm import ScrubProof
from shared.claims.visit import Grant
from shared.errors import Conflict, NotFound, ProtocolViolation
from shared.protocol.different_records import fewest
from shared.wire.gpu import EndTour, Evaluate, Train, TrainTour
from shared.wire.gpu_answers import Committed, RegionContent, WorkState

LOSS_LIMIT: Final = 1e4
"""Released losses are clipped to [-LOSS_LIMIT, LOSS_LIMIT] (design 5)."""
REMEMBERED: Final = 1024
LOSSES_KEPT: Final = 4
"""Of so many works, the newest, each step's loss is kept: whoever asks again asks about the last one."""


Command = Train | TrainTour | Evaluate | EndTour
Fewest = Callable[[int, int, int], int]
"""batch, steps, enough: different records in that one of a work's first steps which has fewest (`shared.protocol.different_records`)."""


@dataclass(frozen=True)
class ReleaseRule:
    """When and how losses leave the GPU (design 5): rounded to `decimals`, never over fewer different records than `privacy_floor`.

    `withheld`: not at all, whoever's records they are over except the owner's own.
    """

    decimals: int
    privacy_floor: int
    withheld: bool = False

    def release(self, loss: float | None, records: int) -> float | None:
        """The loss as it may be told; None if it may not, or is no number."""
        if self.withheld or loss is None or records < self.privacy_floor or not math.isfinite(loss):
            return None
        return round(min(max(loss, -LOSS_LIMIT), LOSS_LIMIT), self.decimals)


@dataclass
class Work:
    """One command that works for a while by its idempotency key, and what became of it. Losses of steps are kept as they may be told, the
    end's is raw. Of the first `forgotten` steps none is kept any more.

    `before`: what was committed when a tour's end began. `part`: of a tour's records, those that the training failed on, from 0.
    `different`: how many of its records are different ones; a dataset that is smaller than its visit comes several times. None: all are.
    `fewest`: how many that step has of them which has fewest, once it was asked for.
    """

    command: Command
    batch: int
    own_data: bool
    state: Literal["running", "done", "failed"] = "running"
    losses: list[tuple[int, float | None]] = field(default_factory=list)
    forgotten: int = 0
    end: Finished | None = None
    code: str | None = None
    detail: str | None = None
    committed: Committed | None = None
    before: Committed | None = None
    part: int | None = None
    different: Fewest | None = None
    fewest: int | None = None

    @property
    def regions(self) -> tuple[int, ...]:
        """Whose records it reads."""
        match self.command:
            case EndTour():
                return ()
            case TrainTour(parts=parts):
                return tuple(part.region for part in parts)
            case command:
                return (command.region,)

    @property
    def failed_on(self) -> str | None:
        """The visit whose records a tour's training failed on, where it was one visit's."""
        if not isinstance(self.command, TrainTour) or self.part is None:
            return None
        return self.command.parts[self.part].visit

    def has_news(self, after: int) -> bool:
        """Whether steps beyond the first `after` are worth an answer while it runs; the last one is not, for the work's end follows it."""
        return after < len(self.losses) < self._steps

    @property
    def _steps(self) -> int:
        return self.command.steps if isinstance(self.command, Train | TrainTour) else 0

    def note(self, step: int, loss: float | None, rule: ReleaseRule) -> None:
        """One more step was made. A loss that may not be told is not kept either."""
        rule = self._rule(rule)
        self.losses.append((step, rule.release(loss, self._in_a_step(rule.privacy_floor))))

    def forget_losses(self) -> None:
        """All of them; how many steps there were stays known."""
        self.forgotten += len(self.losses)
        self.losses.clear()

    def _rule(self, rule: ReleaseRule) -> ReleaseRule:
        return ReleaseRule(rule.decimals, 1) if self.own_data else rule

    def tell(self, rule: ReleaseRule, after: int) -> WorkState:
        """The work's state with losses of steps beyond the first `after`.

        Records of the session's owner (`own_data`, the validation region) have no privacy floor; a holder's have.
        """
        rule, end = self._rule(rule), self.end
        kept = self.losses[max(0, after - self.forgotten) :]
        return WorkState(
            work=self.command.work,
            state=self.state,
            losses=[(step, loss) for step, loss in kept if loss is not None],
            steps_done=end.steps if end else self.forgotten + len(self.losses),
            loss=rule.release(end.loss, self._among(end.records, 1, rule.privacy_floor)) if end else None,
            records=end.records if end else 0,
            seconds=end.seconds if end else 0.0,
            finite=end.finite if end else True,
            update_norm=end.update_norm if end else None,
            code=self.code,
            detail=self.detail,
            visit=self.failed_on,
        )

    def _among(self, batch: int, steps: int, floor: int) -> int:
        return batch if self.different is None else self.different(batch, steps, floor)

    def _in_a_step(self, floor: int) -> int:
        """Different records of the step that has fewest, so far as `floor` asks. One that has too few keeps every step's loss from being
        told: its own could be worked out from the others and their mean."""
        if self.fewest is None:
            self.fewest = self._among(self.batch, self._steps, floor)
        return self.fewest


@dataclass
class Visit:
    """What the GPU knows of one visit; the source of its signed statement."""

    grant: Grant
    content: RegionContent | None = None
    work: Work | None = None
    before: Committed | None = None
    after: Committed | None = None
    proof: ScrubProof | None = None
    statement: bytes | None = None

    def different(self, batch: int, steps: int, enough: int) -> int:
        """Of its records, see `Fewest`."""
        return fewest(self.grant.cursor, self.grant.dataset_records, batch, steps, enough)


class Ledger:
    """Works by key and visits by id; the oldest are forgotten beyond REMEMBERED (a forgotten train command then fails on its step)."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.visits: dict[str, Visit] = {}
        self.running: Work | None = None
        self.pending: Work | None = None
        self._with_losses: deque[Work] = deque()
        self._latest: dict[int, Visit] = {}
        self._unsettled: list[Visit] = []

    def find(self, command: Command) -> Work | None:
        """The work of a repeated command.

        Raises:
            Conflict: the same key names another work.
        """
        work = self.works.get(command.work)
        if work is not None and work.command != command:
            raise Conflict(f"work {command.work!r} is another command", code="work-key-reused")
        return work

    def require_idle(self) -> None:
        """Raises: ProtocolViolation: a work is running."""
        if self.running is not None:
            raise ProtocolViolation("another work is running", code="work-running", remedy="Poll it to its end first.")

    def begin(self, work: Work) -> None:
        """Enter a work that now runs."""
        self.works[work.command.work] = self.running = work
        self._with_losses.append(work)
        if len(self._with_losses) > LOSSES_KEPT:
            self._with_losses.popleft().forget_losses()
        if len(self.works) > REMEMBERED:
            del self.works[next(iter(self.works))]

    def work(self, key: str) -> Work:
        """Raises: NotFound."""
        if key not in self.works:
            raise NotFound(f"the GPU knows no work {key!r}", code="unknown-work")
        return self.works[key]

    def require_new(self, grant: Grant) -> None:
        """Raises: Conflict: the grant's visit had one before."""
        if grant.visit in self.visits:
            raise Conflict(
                f"visit {grant.visit!r} had its grant", code="visit-reused", remedy="Plan the attempt as a new visit."
            )

    def enter(self, visit: Visit) -> None:
        """A grant was installed for this visit."""
        name = visit.grant.visit
        self.visits[name] = self._latest[visit.grant.region] = visit
        if len(self.visits) > REMEMBERED:
            del self.visits[next(iter(self.visits))]

    def visit(self, visit_id: str) -> Visit:
        """Raises: NotFound."""
        if visit_id not in self.visits:
            raise NotFound(f"the GPU knows no visit {visit_id!r}", code="unknown-visit")
        return self.visits[visit_id]

    def visit_in(self, region: int) -> Visit | None:
        """The latest visit that was granted a region."""
        return self._latest.get(region)

    def trained(self, visit: Visit) -> None:
        """The visit's training has begun: what becomes of the model is its result."""
        self._unsettled.append(visit)
        self.pending = visit.work

    def settle(self, after: Committed) -> None:
        """The working model was committed or rolled back: visits trained since then end with this model."""
        for visit in self._unsettled:
            visit.after = after
        self._unsettled.clear()
        self.pending = None
