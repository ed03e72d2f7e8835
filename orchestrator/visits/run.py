"""What a visit's steps work with: one life of one session, its peers and doors. Knows no step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.gpu_session.bulk import records_of
from orchestrator.gpu_session.life import GpuLife
from orchestrator.holders.arrivals import Arrivals
from orchestrator.holders.channels import Channels
from orchestrator.holders.inbox import Inboxes
from orchestrator.ledger.log import SignedHead, head_row, sign_head
from orchestrator.platform_link import Mux
from orchestrator.sessions.book import Book
from orchestrator.sessions.remembered import ApprovedDataset, ModelState, Placement
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.journey import Journey, heard
from orchestrator.visits.outbox import Outbox, Waiting
from shared.claims.archive import Archive
from shared.crypto.signing import PartyKey
from shared.errors import ProtocolViolation
from shared.protocol.travel import TRAVEL, Travel
from shared.service.clock import Clock, Entropy

if TYPE_CHECKING:
    from orchestrator.visits.granting import Granted

LIVE_LOSSES = 512


@dataclass
class Stopwatch:
    """Seconds spent in each named step of the visit under way, by the monotonic clock that came in by the door."""

    timer: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)
    _under_way: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time spent inside under `name`."""
        self._begin(name)
        try:
            yield
        finally:
            self._end(name)

    @contextmanager
    def steps(self, first: str, second: str) -> Iterator[Callable[[], None]]:
        """Count the time spent inside under `first` until what this gives is called, and from then on under `second`."""
        self._begin(first)

        def turn() -> None:
            self._end(first)
            self._begin(second)

        try:
            yield turn
        finally:
            for name in (first, second):
                if name in self._under_way:
                    self._end(name)

    def _begin(self, name: str) -> None:
        self._under_way[name] = self.timer()

    def _end(self, name: str) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + self.timer() - self._under_way.pop(name)

    def reading(self) -> dict[str, float]:
        """Seconds by step, rounded to microseconds; of a step under way, those so far."""
        now = self.timer()
        so_far = {name: self.seconds.get(name, 0.0) + now - begun for name, begun in self._under_way.items()}
        return {name: round(value, 6) for name, value in (self.seconds | so_far).items()}


@dataclass
class Run:
    """One life of one session."""

    book: Book
    life: GpuLife
    mux: Mux
    channels: Channels
    inboxes: Inboxes
    arrivals: Arrivals
    signing_key: PartyKey
    program: Archive
    archive: bytes
    gpu: str
    agent_url: str
    visit_attempts: int
    copy_chains: int
    clock: Clock
    entropy: Entropy
    timer: Callable[[], float]
    leaving: Callable[[], bool]  # whether the session or the process is about to end: no holder is waited for any more
    interrupted: Callable[[], bool] = lambda: False  # whether anything else is to be done before the next visit
    watch: Stopwatch = field(init=False)
    outbox: Outbox = field(default_factory=Outbox)
    # The fact that it came after, its number behind that one, itself: the first two are an event's id, and never change.
    losses: deque[tuple[int, int, dict[str, object]]] = field(default_factory=lambda: deque(maxlen=LIVE_LOSSES))
    shown: tuple[int, int] = (0, 0)  # fact and number of the newest, over all visits

    def __post_init__(self) -> None:
        self.watch = Stopwatch(self.timer)
        self.archive_records = records_of(self.archive)
        self.journey = Journey(self.mux, self.life.home, away=self.travel.away)
        self._writing: asyncio.Future[None] | None = None
        # The next visit's grant, where it was installed with the end of the one before; until it is offered its key is here.
        self.granted: Granted | None = None
        # The same, where it is installed later: its epoch is open, and its holder may have its key already.
        self.drawn: Granted | None = None
        self.just_trained: float | None = None  # seconds of this life's last training
        self._head: SignedHead | None = None
        self._counted = (0, 0)

    @property
    def state(self) -> SessionState:
        """The session as folded so far."""
        return self.book.state

    @property
    def visit(self) -> VisitState:
        """The open visit. Raises: ProtocolViolation: none is open."""
        if self.state.current is None:
            raise ProtocolViolation("no visit is open", code="no-visit")
        return self.state.current

    @property
    def travel(self) -> Travel:
        """What the session's mode gives its holders."""
        return TRAVEL[self.state.manifest.travel_mode]

    @property
    def gone(self) -> bool:
        """Whether the GPU is at the next holder's port already, or on its way there, though no step of that visit was taken."""
        return self.travel.away and self.state.current is not None and self.drawn is None

    @property
    def dataset(self) -> ApprovedDataset:
        """What the open visit's holder committed to. Raises: ProtocolViolation: it never approved."""
        return self.dataset_of(self.visit.holder)

    def dataset_of(self, holder: str) -> ApprovedDataset:
        """What a holder committed to. Raises: ProtocolViolation: it never approved."""
        found = self.state.datasets.get(holder)
        if found is None:
            raise ProtocolViolation(f"{holder} never approved this session", code="not-approved")
        return found

    @property
    def placement(self) -> Placement:
        """Where things lie. Raises: ProtocolViolation: nothing was placed."""
        if self.state.placement is None:
            raise ProtocolViolation("nothing was placed on the GPU yet", code="not-placed")
        return self.state.placement

    @property
    def committed(self) -> ModelState:
        """The last committed model. Raises: ProtocolViolation."""
        if self.state.committed is None:
            raise ProtocolViolation("no model was committed yet", code="not-placed")
        return self.state.committed

    def link_bytes(self) -> dict[str, Any]:
        """Bytes of command frames since the last time this was asked."""
        link = self.life.link
        sent, received = link.bytes_out - self._counted[0], link.bytes_in - self._counted[1]
        self._counted = (link.bytes_out, link.bytes_in)
        return {"bytes_to_gpu": sent, "bytes_from_gpu": received}

    def signed_head(self) -> SignedHead:
        """The log's head as it stands, signed once a size; its row goes with the next commit."""
        tree = self.state.tree
        if self._head is None or self._head.head.size != tree.size:
            self._head = sign_head(tree, self.state.id, self.signing_key, self.clock())
            self.book.row(head_row(self._head))
        return self._head

    def give_up(self) -> None:
        """This life is over: nothing of it is left under way, and no key of it lies here."""
        self.outbox.say()
        self.journey.give_up()
        self.granted = self.drawn = None

    def begin_commit(self) -> None:
        """Have what is staged made durable while something else is done; `written` tells when it is. What holders hear of it is held."""
        self.signed_head()
        self.book.begin_commit()
        self._writing = asyncio.ensure_future(self._commit())
        self._writing.add_done_callback(heard)

    async def written(self) -> None:
        """What `begin_commit` began is durable. Raises: Unavailable, Conflict: the database refused, and the book is closed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    async def commit(self, first: Waiting | None = None) -> None:
        """Make what is staged durable, with a signed head over every new leaf, then say what waited for it.

        Args:
            first: said at once; what waits for other holders is held.
        """
        await self._commit()
        self.outbox.say(first)

    async def _commit(self) -> None:
        self.signed_head()
        durable = self.outbox.taken()
        await self.book.commit()
        self.outbox.hold(durable)
