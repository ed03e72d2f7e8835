"""Shows a running session: who has the GPU, the phase, losses per holder, time left. Live on a terminal, plain lines elsewhere.

Knows events of the public API only, and no process.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gput.client import AsyncClient
from shared.service.event_reader import Event

LANE, NAME, LOSS = 48, 14, 7
# What a fact means to a watcher: the word for what now goes on, and the mark on the lane of whoever has the GPU.
FACTS: dict[tuple[str, str], tuple[str, str]] = {
    ("session", "submitted"): ("waiting for the holders' approval", ""),
    ("session", "agreed"): ("everybody approved: waiting for the GPU", ""),
    ("session", "started"): ("attesting the GPU", ""),
    ("session", "life_opened"): ("program and model go into the GPU", ""),
    ("session", "placed"): ("waiting for a holder's channel", ""),
    ("session", "unplaced"): ("the GPU is emptied, and filled again", ""),
    ("session", "restored"): ("restored from a checkpoint: waiting for a holder's channel", ""),
    ("session", "paused"): ("paused", ""),
    ("session", "resumed"): ("resumed", ""),
    ("session", "tour_judged"): ("the tour's step was judged", ""),
    ("session", "tour_ended"): ("the tour has ended", ""),
    ("session", "tour_failed"): ("the tour's step failed in the GPU: once more in a new life", ""),
    ("session", "stopped_early"): ("the held-out loss falls no more: ending early", ""),
    ("session", "last_checked"): ("the finished model was checked on the held-out records", ""),
    ("session", "best_chosen"): ("going back to the model of the least held-out loss", ""),
    ("session", "exported"): ("exporting the model", ""),
    ("session", "completed"): ("completed", ""),
    ("session", "failed"): ("failed", ""),
    ("session", "cancelled"): ("cancelled", ""),
    ("visit", "planned"): ("planning", ""),
    ("visit", "granted"): ("granting", "·"),
    ("visit", "offered"): ("at the holder: data goes into the GPU", "█"),
    ("visit", "reported"): ("coming back", "▒"),
    ("visit", "fenced"): ("fenced: the holder's key is dead", "▒"),
    ("visit", "verified"): ("verified: training, or waiting for its tour", "▒"),
    ("visit", "recalled"): ("recalled", "x"),
    ("visit", "quarantined"): ("quarantined", "x"),
    ("visit", "lost"): ("lost", "x"),
    ("training", "trained"): ("validating", "▓"),
    ("training", "validated"): ("scrubbing", "▓"),
    ("training", "rejected"): ("rejected: rolled back", "x"),
    ("training", "scrubbed"): ("signing the receipt", "▓"),
    ("training", "closed"): ("closed", "▓"),
}
NOBODYS = "orchestrator"
"""On whose lane the losses of a collected tour stand, which are over several holders' records."""
AT_HOLDER = {"granted", "offered"}
GAPS = {"life_opened", "paused"}
"""Before these nothing was trained for a time that says nothing of the time left: a stop, a failure, a pause."""


@dataclass
class Pace:
    """Seconds from one end of a visit (or of a tour whose visits close together) to the next, by the journal's time: what was trained
    before somebody began to watch counts as it was, and what lay between two runs does not."""

    seconds: float = 0.0
    intervals: int = 0
    last: tuple[int, float] | None = None

    def ended(self, unit: int, at: float) -> None:
        """A visit or tour of that number has closed."""
        if self.last is not None and self.last[0] == unit:  # another visit of the tour that has just closed
            return
        if self.last is not None:
            self.seconds, self.intervals = self.seconds + at - self.last[1], self.intervals + 1
        self.last = unit, at

    def interrupted(self) -> None:
        """What comes next follows on nothing."""
        self.last = None

    def left_s(self, units: int) -> float | None:
        """For so many more; None: nothing is known yet."""
        return self.seconds / self.intervals * units if self.intervals else None


@dataclass
class Progress:
    """What is known so far, folded from events."""

    holders: Sequence[str]
    rounds: int
    visits: int
    started: float
    round: int = 0
    at: str = "orchestrator"
    doing: str = "setting up"
    holder: str = ""
    losses: dict[str, deque[float]] = field(default_factory=dict)
    lanes: dict[str, deque[str]] = field(default_factory=dict)
    held_out: float | None = None
    stops: set[int] = field(default_factory=set)
    pace: Pace = field(default_factory=Pace)
    pace_of_tours: Pace = field(default_factory=Pace)
    whose: dict[str, str] = field(default_factory=dict)
    mixed: bool = False
    last_close: float = 0.0

    def __post_init__(self) -> None:
        self.losses = {name: deque(maxlen=400) for name in (NOBODYS, *self.holders)}
        self.lanes = {name: deque(maxlen=LANE) for name in (NOBODYS, *self.holders)}

    @property
    def closed(self) -> int:
        """Stops of the itinerary whose visit has closed; one that was made again after a restore counts once."""
        return len(self.stops)

    def fold(self, event: Event, now: float) -> None:
        """Take one event in."""
        data: dict[str, Any] = event.data
        if event.event == "loss" and (of := data["holder"] or NOBODYS) in self.losses:
            self.losses[of].append(float(data["loss"]))
            self.mixed |= of == NOBODYS
        word = FACTS.get((event.event, str(data.get("fact"))))
        if word is not None:
            visit = str(data.get("visit"))  # only its first fact names the holder, and a tour's visits close together
            self.holder = self.whose[visit] = data.get("holder", self.whose.get(visit, self.holder))
            self.round = int(data.get("round", self.round))
            self._moved(str(data["fact"]), *word)
        kept = data.get("fact") != "rejected" and data.get(
            "stepped", True
        )  # else it is of a model that was rolled back
        if kept and data.get("validation_after") is not None:
            self.held_out = float(data["validation_after"])
        if (event.event, data.get("fact")) == ("training", "closed"):
            self.last_close = now
            self.stops.add(data["index"])
            self.pace.ended(data["index"], data["at"])
            self.pace_of_tours.ended(self.round, data["at"])
        self.mixed |= data.get("fact") == "tour_judged"
        if data.get("fact") in GAPS:
            self.pace.interrupted()
            self.pace_of_tours.interrupted()

    def _moved(self, fact: str, doing: str, mark: str) -> None:
        self.doing = doing
        self.at = self.holder if fact in AT_HOLDER else "orchestrator"
        if mark:
            for name, lane in self.lanes.items():
                lane.append(mark if name == self.at else "░")

    def left_s(self, now: float) -> float | None:
        """Estimated seconds left, at the pace of the visits closed so far, or of the tours where all visits of one close together."""
        of_tours, of_visits = self.rounds - self.round, self.visits - self.closed
        left = self.pace_of_tours.left_s(of_tours) if self.mixed else self.pace.left_s(of_visits)
        return None if left is None else max(0.0, left - (now - self.last_close))


class View(Protocol):
    """Something that shows progress."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...
    def show(self, event: Event) -> None:
        """Take one event in and show it."""


def panel(p: Progress, now: float, width: int, *, over: bool = False) -> RenderableType:
    """The panel, `width` columns wide at most: no line wraps, and a lane that is too long shows its end.

    Args:
        over: nobody watches any more: what would be an outlook is left out.
    """
    left = None if over else p.left_s(now)
    head = Text.assemble(
        ("EMULATED: not confidential  ", "yellow"),
        f"round {p.round}/{p.rounds}  " if p.round else "",
        f"visit {min(p.closed + 1, p.visits)}/{p.visits}  {_clock_time(now - p.started)}",
        f", ~{_clock_time(left)} left" if left is not None else "",
    )
    where = Text(f"GPU: {p.at:<{NAME}} {p.doing}")
    lane = max(1, min(LANE, width - NAME - LOSS - 4))
    table = Table(box=None, pad_edge=False)
    table.add_column("party", width=NAME, no_wrap=True)
    table.add_column(
        "where the GPU was", width=lane, no_wrap=True
    )  # as wide when it is empty, or the losses would wander
    table.add_column("loss", width=LOSS, justify="right", no_wrap=True)
    for name, marks in p.lanes.items():
        losses = p.losses.get(name)
        table.add_row(name, "".join(marks)[-lane:], f"{losses[-1]:.3f}" if losses else "")
    key = Text("█ data into the GPU  ▒ back, fenced, verified  ▓ training  ░ elsewhere", style="dim")
    held = Text(f"held-out loss {p.held_out:.3f}" if p.held_out is not None else "held-out loss: not measured yet")
    for line in (head, where, key, held):
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(head, where, table, key, held)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


class LiveView:
    """A live panel on a terminal."""

    def __init__(
        self, progress: Progress, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        self._progress, self._clock = progress, clock
        self._over = False
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if kind is not None:
            self._progress.doing = "not watched any more"
        self._live.stop()

    def show(self, event: Event) -> None:
        """Take one event in; the panel refreshes by itself."""
        self._progress.fold(event, self._clock())

    def _render(self) -> RenderableType:
        return panel(self._progress, self._clock(), self._console.width, over=self._over)


class PlainView:
    """One line per closed visit and per round, for logs and pipes."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def show(self, event: Event) -> None:
        """Print a line when a visit has closed."""
        p = self._progress
        closed = p.closed
        p.fold(event, self._clock())
        if p.closed == closed:
            return
        losses, left = p.losses.get(p.holder) or p.losses[NOBODYS], p.left_s(self._clock())
        name = f"{p.holder:<{max(map(len, p.holders), default=0)}}"
        parts = [f"visit {p.closed}/{p.visits}", f"round {p.round}/{p.rounds}", name]
        parts += [f"loss {losses[-1]:.3f}"] if losses else []
        parts += [f"held-out {p.held_out:.3f}"] if p.held_out is not None else []
        parts += [f"about {_clock_time(left)} left"] if left is not None else []
        print("  " + "  ".join(parts), file=sys.stderr, flush=True)


def view_for(progress: Progress) -> View:
    """The live panel on a terminal, plain lines elsewhere."""
    return LiveView(progress) if sys.stderr.isatty() else PlainView(progress)


async def watch(client: AsyncClient, session: str, holders: Sequence[str], began: float) -> dict[str, Any]:
    """Show a session until it ends; its final view."""
    view = await client.session(session)
    with view_for(Progress(holders, view["rounds"], view["visits_total"], began)) as shown:
        async for event in client.events(session):
            shown.show(event)
    final: dict[str, Any] = await client.session(session)
    return final
