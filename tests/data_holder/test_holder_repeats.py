"""What did not work and is done again: once of each kind, as it was said last; a share ever more rarely, for each try costs a quote."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from data_holder import pauses, repeats, runner
from data_holder.repeats import Item, Repeats
from shared.errors import Unavailable
from shared.wire.visit import InboxItem
from tests.data_holder.conftest import Running
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_workers import Handled

OTHER = "s_" + "f" * 16


class Time:
    """That of the process, for pauses; only a test moves it."""

    now = 0.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(pauses, "monotonic", lambda: time.now)
    return time


def item(kind: Any, seq: int = 1, **more: Any) -> InboxItem:
    return InboxItem(seq=seq, kind=kind, session=SESSION, **more)


@pytest.fixture
def unjudged(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A holder that is asked for a share and cannot judge by whom: as often as it asked for a proof."""
    release: Any = running.holder.runner._release

    async def may(session: str) -> Any:
        return running.holder.runner._approvals.approved(session), None, b""

    async def never(*_: Any) -> None:
        raise Unavailable("not now", code="snp-crl-malformed")

    monkeypatch.setattr(release, "_may", may)
    monkeypatch.setattr(release, "_verified", never)
    offer = {"offer": "o_1", "runtime_data": "", "evidence": {"quote": ""}}
    return answering(running, monkeypatch, "/share-offers", lambda number: httpx2.Response(201, json=offer))


async def test_a_share_that_is_asked_for_again_and_again_is_tried_ever_more_rarely(
    running: Running, monkeypatch: pytest.MonkeyPatch, time: Time, unjudged: list[str]
) -> None:
    """Each time that the orchestrator asked was tried each second from then on: proofs without end, ever more of them each second."""
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    handled = Handled(running, monkeypatch)
    await running.approved_with_channel()
    for _ in range(10):
        running.orchestrator.post("share_wanted")
    await running.until(lambda: unjudged)
    tried = list[float]()
    for second in range(1, 33):
        time.now = float(second)
        if second % 10 == 0:
            running.orchestrator.post("share_wanted")
        running.orchestrator.post("channel_wanted", session=OTHER)  # behind it: what was posted before has been read
        await running.until(lambda: any(item.seq == last(running) for item in handled.items))
        if second in (1, 3, 7, 15, 31):
            await running.until(lambda: len(unjudged) > len(tried) + 1)
            tried.append(time.now)
        assert len(unjudged) == len(tried) + 1
    assert tried == [1, 3, 7, 15, 31]


def last(running: Running) -> int:
    return int(running.orchestrator.items[-1]["seq"])


async def test_a_share_is_given_once_it_can_be_judged(
    running: Running, monkeypatch: pytest.MonkeyPatch, unjudged: list[str]
) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setitem(repeats.PAUSES, "share_wanted", (0.01, 0.01))
    await running.approved_with_channel()
    running.orchestrator.post("share_wanted")
    await running.until(lambda: len(unjudged) > 2)
    release: Any = running.holder.runner._release
    given = list[str]()

    async def give(session: str) -> None:
        given.append(session)

    monkeypatch.setattr(release, "_give", give)
    await running.until(lambda: given)
    assert not running.holder.runner._again.of(SESSION)


def test_what_is_said_again_takes_the_place_of_what_waits(time: Time) -> None:
    again = Repeats()
    first, second = item("head_wanted", challenge="00" * 32), item("head_wanted", 2, challenge="11" * 32)
    again.failed(SESSION, first)
    assert again.takes(SESSION, second)
    assert again.due() == [], "an orchestrator of before is not answered behind the one of now"
    again.failed(SESSION, second)
    again.failed(SESSION, second)
    assert again.due() == [(SESSION, second)]
    assert not again.of(SESSION)


def test_a_share_waits_for_its_time_whoever_asks(time: Time) -> None:
    again, asked = Repeats(), [item("share_wanted", seq) for seq in range(3)]
    again.failed(SESSION, asked[0])
    assert not again.takes(SESSION, asked[1])
    assert again.due() == []
    time.now = 1.0
    assert again.due() == [(SESSION, asked[1])]
    again.failed(SESSION, asked[1])
    time.now = 2.0
    assert not again.takes(SESSION, asked[2]), "after the second time it waits twice as long"
    time.now = 3.0
    assert again.due() == [(SESSION, asked[2])]
    again.done(SESSION, asked[2])
    assert again.takes(SESSION, asked[0])
    again.failed(SESSION, asked[0])
    time.now = 4.0
    assert again.due() == [(SESSION, asked[0])], "and what worked in between begins anew"


def test_kinds_receipts_and_sessions_do_not_take_one_anothers_places(time: Time) -> None:
    again = Repeats()
    waiting: list[tuple[str, Item]] = [
        (SESSION, item("receipt", 1, receipt_index=4)), (SESSION, item("receipt", 2, receipt_index=5)),
        (SESSION, item("ended", 3)), (SESSION, "veto"), (OTHER, "veto"),
    ]  # fmt: skip
    for session, one in waiting:
        again.failed(session, one)
    assert again.of(OTHER)
    assert again.due() == waiting
    assert not again.of(OTHER)
