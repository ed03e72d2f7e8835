"""What a session's runner does while no life stands: how long it waits, and what it tells an owner whose pause ran out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import CapturingLogger

from orchestrator.holders.inbox import Inboxes
from orchestrator.runner import session_runner
from orchestrator.runner.pausing import pause_over
from orchestrator.runner.session_runner import AWAY_S, SessionRunner
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.keyring import KeyAway
from orchestrator.sessions.state import SessionState
from shared.errors import GputError, Unavailable
from shared.service.changes import Changes, Stopping
from tests.orchestrator.orchestrator_samples import SESSION, manifest

WAIT_S = 0.2
OTHER = "s_bbbbbbbbbbbbbbbb"


class Waiting:
    """A runner between two lives, over a clock of its own: whoever waits for the time waits so many turns of the loop."""

    def __init__(self, *, confirmed: bool = True, read: Sequence[GputError | None] = ()) -> None:
        self.changes, self.now, self.reads = Changes(), 0.0, 0
        self.wishes = Wishes(self.changes)
        state = SimpleNamespace(id="s_1", pause_asked=False, cancel_asked=False, asked_by="")
        self._book = SimpleNamespace(state=state, changes=self, announce=self.changes.notify)
        self._read = list(read)
        self.runner = cast(Any, object.__new__(SessionRunner))
        catalogue = SimpleNamespace(reopen=self._reopen)
        self.runner._house = SimpleNamespace(timer=lambda: self.now, catalogue=catalogue)
        self.runner.book, self.runner.wishes, self.runner.run = self._book, self.wishes, None
        self.heads = self.runner.heads = SimpleNamespace(confirmed=confirmed)

    @property
    def version(self) -> int:
        return self.changes.version

    async def wait(self, seen: int, timeout_s: float) -> None:
        """A tenth of a second goes by, as if somebody had said something."""
        await asyncio.sleep(0)
        self.now += min(timeout_s, 0.1)

    async def _reopen(self, session: str) -> Any:
        self.reads += 1
        if self._read and (error := self._read.pop(0)) is not None:
            raise error
        return self._book

    async def over(self, seconds: float = WAIT_S, *, tried: bool = False) -> float:
        """Seconds that the wait between two lives took."""
        await self.runner._wait(Unavailable("away"), seconds, tried)
        return self.now


async def test_who_repeats_a_word_shortens_no_wait() -> None:
    """Else whoever is enrolled could use up the session's tries while the GPU is away."""
    assert await Waiting().over() == pytest.approx(WAIT_S)


@pytest.mark.parametrize("wish", ["cancel", "stop"])
async def test_an_owners_wish_ends_the_wait(wish: str) -> None:
    waiting = Waiting()
    asyncio.get_running_loop().call_soon(waiting.wishes.wish, wish, "alice")
    assert await waiting.over() < WAIT_S


async def test_a_pause_shortens_no_wait() -> None:
    """It promises a checkpoint, for which a life is needed: lives tried without a wait would soon be too many for the session."""
    waiting = Waiting()
    asyncio.get_running_loop().call_soon(waiting.wishes.wish, "pause", "alice")
    assert await waiting.over() == pytest.approx(WAIT_S)


async def test_a_pause_before_the_heads_needs_no_life_and_ends_the_wait() -> None:
    waiting = Waiting(confirmed=False)
    asyncio.get_running_loop().call_soon(waiting.wishes.wish, "pause", "alice")
    assert await waiting.over() < WAIT_S


@pytest.mark.parametrize("wish", ["cancel", "pause"])
async def test_a_wish_that_was_tried_in_vain_shortens_no_wait(wish: str) -> None:
    """The database takes nothing: to try again at once would only fill the log."""
    waiting = Waiting(confirmed=False)
    waiting.wishes.wish(wish, "alice")
    assert await waiting.over(tried=True) == pytest.approx(WAIT_S)


async def test_a_database_that_cannot_be_read_for_a_while_costs_no_confirmed_heads() -> None:
    gone = Unavailable("away", code="database-unreachable")
    waiting = Waiting(read=[gone, gone])
    heads = waiting.heads
    assert await waiting.over() == pytest.approx(WAIT_S + 2 * AWAY_S)
    assert (waiting.reads, waiting.runner.trouble.code) == (3, "database-unreachable")
    assert waiting.runner.heads is heads


async def test_a_database_that_is_away_for_long_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked every few seconds, by every session: what changed is said, once."""
    gone, other = Unavailable("away", code="database-unreachable"), Unavailable("full", code="disk-full")
    logged = CapturingLogger()
    monkeypatch.setattr(session_runner, "_log", logged)
    await Waiting(read=[gone, gone, gone, other, other, gone]).over()
    assert [line["code"] for _, _, line in logged.calls] == [
        "database-unreachable",
        "disk-full",
        "database-unreachable",
    ]


async def test_a_stop_does_not_wait_for_the_database() -> None:
    waiting = Waiting(read=[Unavailable("away")] * 9)
    waiting.wishes.wish("stop", "")
    assert await waiting.over() == 0.0
    assert waiting.reads == 1


async def test_a_key_that_is_away_is_somebody_elses_to_fetch() -> None:
    with pytest.raises(KeyAway):
        await Waiting(read=[KeyAway("another CVM's")]).over()


@pytest.mark.parametrize(
    ("changes", "goes_on"), [({}, True), ({"continuation": "refused"}, False), ({"accumulate": "tour"}, False)]
)
def test_a_pause_that_ran_out_names_only_a_way_that_is_open(changes: dict[str, Any], goes_on: bool) -> None:
    state = SessionState("s_1", manifest().model_copy(update=changes), "alice", "gpu-0")
    over = pause_over(state, 5.0)
    assert ("gput session succeed s_1" in (over.remedy or "")) is goes_on


async def test_a_life_that_is_gone_takes_its_offers_back() -> None:
    """They are sealed for channels of that life: a holder that starts would open another one for them, and recall its own visit."""
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    for kind in ("offer", "receipt"):
        inboxes.post("city", kind=kind, session=OTHER)
        inboxes.post("city", kind=kind, session=SESSION)
    forgotten = list[str]()
    visit = SimpleNamespace(id="v_1", holder="city")
    run = SimpleNamespace(
        give_up=lambda: None,
        life=SimpleNamespace(close=lambda: None),
        state=SimpleNamespace(id=SESSION, open_visits=[visit]),
    )
    runner = cast(Any, object.__new__(SessionRunner))
    runner._house = SimpleNamespace(arrivals=SimpleNamespace(forget=forgotten.append), inboxes=inboxes)
    runner.run, runner.channels = run, None
    runner._drop_life()
    assert forgotten == ["v_1"]
    left = [(item.session, item.kind) for item in inboxes._box("city").items]
    assert left == [(OTHER, "offer"), (OTHER, "receipt"), (SESSION, "receipt")]
