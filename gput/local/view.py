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
from shared.service.sse import Event

LANE = 48
PHASE_MARK = {
    "GRANTED": "·",
    "AWAY": "█",
    "RETURNED": "▒",
    "FENCED": "▒",
    "VERIFIED": "▒",
    "LOADED": "▓",
    "TRAINED": "▓",
}
PHASE_WORD = {
    "PLANNED": "planning",
    "GRANTED": "granting",
    "AWAY": "at the holder: data goes into the GPU",
    "RETURNED": "coming back",
    "FENCED": "fenced: the holder's key is dead",
    "VERIFIED": "verified",
    "LOADED": "training",
    "TRAINED": "validating",
    "VALIDATED": "scrubbing",
    "SCRUBBED": "signing the receipt",
    "CLOSED": "closed",
}


@dataclass
class Progress:
    """What is known so far, folded from events."""

    holders: Sequence[str]
    visits: int
    started: float
    closed: int = 0
    round: int = 0
    at: str = "orchestrator"
    phase: str = "PLANNED"
    losses: dict[str, deque[float]] = field(default_factory=dict)
    lanes: dict[str, deque[str]] = field(default_factory=dict)
    held_out: tuple[float | None, float | None] = (None, None)
    first_close: float = 0.0

    def __post_init__(self) -> None:
        self.losses = {name: deque(maxlen=400) for name in self.holders}
        self.lanes = {name: deque(maxlen=LANE) for name in ("orchestrator", *self.holders)}

    def fold(self, event: Event, now: float) -> None:
        """Take one event in."""
        data: dict[str, Any] = event.data
        holder = data.get("holder")
        if event.event == "loss" and holder in self.losses:
            self.losses[holder].append(float(data["loss"]))
        elif event.event in ("visit", "training") and holder:
            self._moved(str(data["phase"]), str(holder), int(data.get("round") or self.round))
            if data["phase"] == "CLOSED":
                self.closed += 1
                self.first_close = self.first_close or now
            if data.get("validation_loss") is not None:
                self.held_out = (self.held_out[0] or data["validation_loss"], data["validation_loss"])

    def _moved(self, phase: str, holder: str, round_: int) -> None:
        self.phase, self.round = phase, round_
        self.at = holder if phase == "AWAY" else "orchestrator"
        mark = PHASE_MARK.get(phase)
        if mark:
            for name, lane in self.lanes.items():
                here = name == (holder if phase in ("GRANTED", "AWAY") else "orchestrator")
                lane.append(mark if here else "░")

    def left_s(self, now: float) -> float | None:
        """Estimated seconds left, from the visits closed so far."""
        if self.closed < 2:
            return None
        return (now - self.first_close) / (self.closed - 1) * (self.visits - self.closed)


class View(Protocol):
    """Something that shows progress."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...
    def show(self, event: Event) -> None:
        """Take one event in and show it."""


class LiveView:
    """A live panel on a terminal."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._live = Live(console=Console(stderr=True), get_renderable=self._render, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        """Take one event in; the panel refreshes by itself."""
        self._progress.fold(event, self._clock())

    def _render(self) -> RenderableType:
        p, now = self._progress, self._clock()
        left = p.left_s(now)
        head = Text.assemble(
            ("EMULATED hardware, not confidential  ", "yellow"),
            f"round {p.round}  visit {min(p.closed + 1, p.visits)}/{p.visits}  ",
            f"{now - p.started:.0f} s gone" + (f", about {left:.0f} s left" if left is not None else ""),
        )
        where = Text(f"GPU: {p.at:<14} {PHASE_WORD.get(p.phase, p.phase.lower())}")
        table = Table("party", "where the GPU was", "loss", box=None, pad_edge=False)
        for name, lane in p.lanes.items():
            losses = p.losses.get(name)
            table.add_row(name, "".join(lane), f"{losses[-1]:.3f}" if losses else "")
        key = Text("█ data into the GPU  ▒ back, fenced, verified  ▓ training  ░ elsewhere", style="dim")
        held = f"held-out loss {p.held_out[1]:.3f}" if p.held_out[1] is not None else ""
        return Group(head, where, table, key, Text(held))


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
        holder = event.data["holder"]
        losses, left = p.losses.get(holder), p.left_s(self._clock())
        parts = [f"visit {p.closed}/{p.visits}", f"round {p.round}", f"{holder:<8}"]
        parts += [f"loss {losses[-1]:.3f}"] if losses else []
        parts += [f"held-out {p.held_out[1]:.3f}"] if p.held_out[1] is not None else []
        parts += [f"about {left:.0f} s left"] if left is not None else []
        print("  " + "  ".join(parts), file=sys.stderr, flush=True)


def view_for(progress: Progress) -> View:
    """The live panel on a terminal, plain lines elsewhere."""
    return LiveView(progress) if sys.stderr.isatty() else PlainView(progress)


async def watch(client: AsyncClient, session: str, holders: Sequence[str], began: float) -> dict[str, Any]:
    """Show a session until it ends; its final view."""
    view = await client.session(session)
    with view_for(Progress(holders, view["visits_total"], began)) as shown:
        async for event in client.events(session):
            shown.show(event)
    final: dict[str, Any] = await client.session(session)
    return final
