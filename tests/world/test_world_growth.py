"""What one visit costs does not grow with the visits before it: statements, rows, the database's own steps, calls and bytes, counted."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tests.world.world import PATIENCE_S, World
from tests.world.world_material import make_material

HOLDERS = tuple(f"h{number:02}" for number in range(16))
ROUNDS = 12
VISITS = len(HOLDERS) * ROUNDS
STEPS_AT_A_TIME = 20
BY_TIME = ("replay_nonces", "FROM holder_requests", "BEGIN")
"""Done by the clock as well, and not by the visit alone."""


class Meter:
    """Counts of every service of this process; `marks` has them as they were when each visit was closed."""

    def __init__(self, world: World) -> None:
        self.now: Counter[str] = Counter()
        self.marks: list[Counter[str]] = []
        self._world, self._seen = world, 0
        self._running = threading.local()

    def connected(self, connection: Any, _record: object) -> None:
        connection.set_progress_handler(self._step, STEPS_AT_A_TIME)

    def _step(self) -> int:
        self.now["database steps"] += getattr(self._running, "counts", False)
        return 0

    def executes(self, _c: object, _cursor: object, statement: str, *_more: object) -> None:
        self._running.counts = not any(word in statement for word in BY_TIME)

    def executed(self, _c: object, cursor: Any, statement: str, parameters: Any, _ctx: object, many: bool) -> None:
        if not self._running.counts:
            return
        self.now["statements"] += 1
        if not statement.startswith("SELECT"):
            self.now["rows written"] += len(parameters) if many else max(cursor.rowcount, 0)
        if statement.startswith("INSERT INTO journal") and "training.closed" in repr(parameters):
            self._mark()

    def _mark(self) -> None:
        ended = [e for e in self._world.wire.transcript if e.status]
        self.now["calls"] = len(ended)
        for exchange in ended[self._seen :]:
            self.now["bytes"] += len(exchange.call.body) + len(exchange.answer)
        self._seen = len(ended)
        self.marks.append(self.now.copy())

    def per_visit(self, name: str, first: int, last: int) -> float:
        """Median over the visits between two marks."""
        marks = self.marks[first : last + 1]
        return statistics.median(b[name] - a[name] for a, b in pairwise(marks))


@contextmanager
def metered(world: World) -> Iterator[Meter]:
    meter = Meter(world)
    hooks = [
        (Engine, "connect", meter.connected), (Engine, "before_cursor_execute", meter.executes),
        (Engine, "after_cursor_execute", meter.executed),
    ]  # fmt: skip
    for hook in hooks:
        sa.event.listen(*hook)
    try:
        yield meter
    finally:
        for hook in hooks:
            sa.event.remove(*hook)


@pytest.mark.slow
async def test_the_last_visits_cost_what_the_first_ones_did(tmp_path: Path) -> None:
    material = make_material(tmp_path / "installation", HOLDERS)
    world = World(
        tmp_path / "world", material, holders=HOLDERS, settings={"orchestrator": {"checkpoint_interval_s": 3600.0}}
    )
    with metered(world) as meter:
        async with world:
            changes = {"rounds": ROUNDS, "validation": None, "steps_per_visit": 1}
            session = await world.submit(**changes)
            app = world["orchestrator"].app
            assert app is not None
            # Looked at from inside: a look over the wire would be counted.
            book = await app.state.orchestrator.catalogue.open(session)
            deadline = time.monotonic() + 10 * PATIENCE_S
            while not book.durable.ended:
                assert time.monotonic() < deadline, world.wire.story()
                await asyncio.sleep(0.2)
            assert book.durable.visits_closed == VISITS
    assert len(meter.marks) == VISITS
    quarter = VISITS // 4
    # The first round opens channels and fills caches.
    early, late = (len(HOLDERS), len(HOLDERS) + quarter), (VISITS - 1 - quarter, VISITS - 1)
    found = {name: (meter.per_visit(name, *early), meter.per_visit(name, *late)) for name in meter.now}
    assert set(found) == {"database steps", "statements", "rows written", "calls", "bytes"}
    assert all(first > 0 for first, _ in found.values()), found
    # A proof of consistency has a node more where the log has doubled; nothing else may.
    grown = {name: pair for name, pair in found.items() if pair[1] > pair[0] * 1.05}
    assert not grown, found
