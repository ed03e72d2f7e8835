"""Inbox and arrivals: what holders are told, and whose word counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.holders.arrivals import Arrivals, Recall
from orchestrator.holders.inbox import KEPT, Inboxes
from shared.claims.visit import VisitTimers
from shared.errors import Conflict, NotPermitted
from shared.service.changes import Stopping
from shared.wire.visit import MOST_ITEMS, Inbox, VisitRefusal, VisitReport

SESSION, VISIT = "s_aaaaaaaaaaaaaaaa", "v_aaaaaaaaaaaaaaaa"
KEYS = {"h0": "0a" * 32, "h1": "0b" * 32}
TIMERS = VisitTimers(grab_gpu=0, import_key=0, buffer_read=0, gpu_write=0, export_key=0)


def report(**changes: Any) -> VisitReport:
    fields: dict[str, Any] = {
        "visit": VISIT, "epoch": 3, "records": 8, "length": 64, "commitment": "0" * 64, "timers": TIMERS, "bytes_sent": 100,
    }  # fmt: skip
    return VisitReport(**{**fields, **changes})


async def nothing(holder: str) -> list[dict[str, Any]]:
    return []


async def test_a_waiting_holder_is_woken_and_reads_each_item_once() -> None:
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    start = (await inboxes.read("h0", 0, 0, nothing)).next
    waiting = asyncio.create_task(inboxes.read("h0", start, 5, nothing))
    await asyncio.sleep(0)
    inboxes.post("h1", kind="channel_wanted", session=SESSION)
    inboxes.post("h0", kind="channel_wanted", session=SESSION)
    async with asyncio.timeout(60):
        got = await waiting
    assert [item.kind for item in got.items] == ["channel_wanted"]
    assert (await inboxes.read("h0", got.next, 0, nothing)).items == []


async def test_who_comes_from_before_the_start_or_from_too_far_back_gets_what_still_matters() -> None:
    async def standing(holder: str) -> list[dict[str, Any]]:
        return [{"kind": "ended", "session": SESSION, "phase": "COMPLETED"}]

    inboxes = Inboxes(lambda: 1000.0, Stopping())
    first = await inboxes.read("h0", 0, 0, standing)
    assert [item.kind for item in first.items] == ["ended"]
    for _ in range(KEPT + 1):
        inboxes.post("h0", kind="channel_wanted", session=SESSION)
    assert [item.kind for item in (await inboxes.read("h0", first.next, 0, standing)).items] == ["ended"]
    assert Inboxes(lambda: 1001.0, Stopping())._seq > first.next


async def test_no_more_stands_in_one_answer_than_a_holder_reads() -> None:
    inboxes = Inboxes(lambda: 1000.0, Stopping())

    async def standing(holder: str) -> list[dict[str, Any]]:
        inboxes.post("h0", kind="channel_wanted", session=SESSION)  # meanwhile
        ended = [{"kind": "ended", "session": f"s_{number:016d}"} for number in range(MOST_ITEMS)]
        return [{"kind": "head_wanted", "session": SESSION}, *ended]

    said = await inboxes.read("h0", 0, 0, standing)
    assert [item.kind for item in said.items[:3]] == ["channel_wanted", "head_wanted", "ended"]
    assert len(Inbox.model_validate_json(said.model_dump_json()).items) == MOST_ITEMS
    assert (await inboxes.read("h0", said.next, 0, nothing)).items == []


async def test_what_a_holder_has_is_not_kept_and_a_lost_answer_is_given_again() -> None:
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    at = (await inboxes.read("h0", 0, 0, nothing)).next
    for _ in range(3 * KEPT):
        inboxes.post("h0", kind="channel_wanted", session=SESSION)
        lost, again = await inboxes.read("h0", at, 0, nothing), await inboxes.read("h0", at, 0, nothing)
        assert lost == again
        assert [item.kind for item in again.items] == ["channel_wanted"]
        at = again.next
        assert len(inboxes._box("h0").items) == 1
    assert (await inboxes.read("h0", at, 0, nothing)).items == []
    assert not inboxes._box("h0").items


async def test_who_starts_gets_an_offer_that_came_before_its_first_question() -> None:
    """It may come as soon as its channel is open, and nothing that stands says it again: the visit had waited for its lease's end."""
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    for kind in ("approval_wanted", "offer", "channel_wanted"):
        inboxes.post("h0", kind=kind, session=SESSION)

    async def standing(holder: str) -> list[dict[str, Any]]:
        return [{"kind": "channel_wanted", "session": SESSION}]

    first = await inboxes.read("h0", 0, 0, standing)
    assert [item.kind for item in first.items] == ["offer", "channel_wanted"]
    inboxes.withdraw("h0", SESSION, ("offer",))
    assert [item.kind for item in (await inboxes.read("h0", 0, 0, standing)).items] == ["channel_wanted"]
    assert (await inboxes.read("h0", first.next, 0, standing)).items == []


async def test_what_is_posted_while_what_stands_is_looked_for_is_not_lost() -> None:
    inboxes = Inboxes(lambda: 1000.0, Stopping())

    async def standing(holder: str) -> list[dict[str, Any]]:
        inboxes.post(holder, kind="head_wanted", session=SESSION, challenge="c1" * 32)
        return [
            {"kind": "head_wanted", "session": SESSION, "challenge": "c1" * 32},
            {"kind": "channel_wanted", "session": SESSION},
        ]

    first = await inboxes.read("h0", 0, 0, standing)
    assert [item.kind for item in first.items] == ["head_wanted", "channel_wanted"]
    assert (await inboxes.read("h0", first.next, 0, standing)).items == []

    async def nothing_stands(holder: str) -> list[dict[str, Any]]:
        inboxes.post(holder, kind="head_wanted", session=SESSION, challenge="c2" * 32)
        return []

    assert [item.challenge for item in (await inboxes.read("h1", 0, 0, nothing_stands)).items] == ["c2" * 32]


async def test_a_withdrawn_offer_is_not_read() -> None:
    inboxes = Inboxes(lambda: 1000.0, Stopping())
    start = (await inboxes.read("h0", 0, 0, nothing)).next
    inboxes.post("h0", kind="channel_wanted", session=SESSION)
    inboxes.withdraw("h0", SESSION, ("channel_wanted",))
    assert (await inboxes.read("h0", start, 0, nothing)).items == []


def unheard() -> None:
    raise AssertionError("nobody waited when it came")


def offered() -> Arrivals:
    arrivals = Arrivals()
    arrivals.plan(VISIT, "h0", 3, KEYS["h0"])
    arrivals.expect(VISIT)
    return arrivals


async def test_who_waits_has_the_gpu_called_back_at_once_by_the_first_word_that_counts() -> None:
    arrivals, heard = offered(), list[str]()
    waiting = asyncio.ensure_future(arrivals.word(VISIT, 5, lambda: heard.append("word")))
    await asyncio.sleep(0)
    for holder, said in (("h1", report()), ("h0", report(epoch=2))):
        with pytest.raises((NotPermitted, Conflict)):
            arrivals.deliver(VISIT, holder, KEYS[holder], said)
    assert heard == []
    arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    assert (heard, waiting.done()) == (["word"], False), "before who waits is woken"
    assert await waiting == report()
    arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    assert heard == ["word"]


async def test_a_word_before_its_time_calls_no_gpu_back() -> None:
    """A holder that has its key while another one's data are trained on: the GPU is not with it."""
    arrivals = offered()
    assert await arrivals.word(VISIT, 0.01, unheard) is None
    arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    assert await arrivals.word(VISIT, 1, unheard) == report()


async def test_only_the_visited_holders_word_in_this_epoch_counts_and_the_same_word_twice_is_one() -> None:
    arrivals = offered()
    with pytest.raises(NotPermitted):
        arrivals.deliver(VISIT, "h1", KEYS["h1"], report())
    with pytest.raises(Conflict):
        arrivals.deliver(VISIT, "h0", KEYS["h0"], report(epoch=2))
    arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    with pytest.raises(Conflict):
        arrivals.deliver(VISIT, "h0", KEYS["h0"], report(records=9))
    assert await arrivals.word(VISIT, 1, unheard) == report()
    arrivals.forget(VISIT)
    with pytest.raises(Conflict):
        arrivals.deliver(VISIT, "h0", KEYS["h0"], report())


async def test_a_word_under_another_key_than_the_rosters_is_nobodys() -> None:
    """Whoever writes the list of enrolled keys can give anybody the holder's name."""
    arrivals = offered()
    assert arrivals.awaits(VISIT, "h0", KEYS["h0"])
    assert not arrivals.awaits(VISIT, "h0", KEYS["h1"])
    for said in (report(), VisitRefusal(visit=VISIT, epoch=3, code="policy", detail="")):
        with pytest.raises(NotPermitted) as refusal:
            arrivals.deliver(VISIT, "h0", KEYS["h1"], said)
        assert refusal.value.code == "key-replaced"
    assert arrivals.away(VISIT)


async def test_a_visit_that_is_planned_can_be_called_back_and_awaits_no_word() -> None:
    arrivals = Arrivals()
    arrivals.plan(VISIT, "h0", 3, KEYS["h0"])
    assert arrivals.called_back(VISIT) is None
    assert not arrivals.awaits(VISIT, "h0", KEYS["h0"])
    with pytest.raises(Conflict):
        arrivals.deliver(VISIT, "h0", KEYS["h0"], report())
    arrivals.recall(VISIT, "veto", blame=False)
    why = arrivals.called_back(VISIT)
    assert why is not None
    assert (why.reason, why.blame) == ("veto", False)
    arrivals.expect(VISIT)
    with pytest.raises(Recall):
        await arrivals.word(VISIT, 1, unheard)
    arrivals.forget(VISIT)


async def test_time_and_recall_end_the_waiting() -> None:
    arrivals = offered()
    assert await arrivals.word(VISIT, 0.01, unheard) is None
    arrivals.recall(VISIT, "veto", blame=False)
    with pytest.raises(Recall) as recalled:
        await arrivals.word(VISIT, 1, unheard)
    assert (recalled.value.reason, recalled.value.blame) == ("veto", False)
    with pytest.raises(Conflict):
        arrivals.deliver(VISIT, "h0", KEYS["h0"], report())


async def test_who_has_heard_more_than_was_said_here_gets_what_still_matters() -> None:
    """The clock was put back before a restart, or the standby's is behind: what was posted since seemed to be what the holder had."""

    async def standing(holder: str) -> list[dict[str, Any]]:
        return [{"kind": "channel_wanted", "session": SESSION}]

    before = (await Inboxes(lambda: 1000.0, Stopping()).read("h0", 0, 0, standing)).next
    inboxes = Inboxes(lambda: 990.0, Stopping())
    inboxes.post("h0", kind="channel_wanted", session=SESSION)
    got = await inboxes.read("h0", before, 0, standing)
    assert [item.kind for item in got.items] == ["channel_wanted"]
    assert got.next < before
    inboxes.post("h0", kind="ended", session=SESSION, phase="COMPLETED")
    assert [item.kind for item in (await inboxes.read("h0", got.next, 0, standing)).items] == ["ended"]
