"""What the policy approved and of which nothing came goes once the orchestrator does not know it; whatever else there is stays."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, insert

from data_holder import runner
from data_holder.ending import AWAY, UNNAMED
from data_holder.identity import OwnKeys
from data_holder.never_begun import KEPT_S
from data_holder.protocol.state import REQUEST, request_body
from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.crypto.signing import PartyKey
from shared.service.retention import DAY_S
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, make_manifest, problem
from tests.data_holder.test_holder_manifest_again import IDS, ask, said, settled


class Views:
    """What the orchestrator says of the sessions themselves, `of` some of them another thing, and how often it was asked."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch, says: httpx2.Response) -> None:
        self.asked, self.says, self.of = 0, says, dict[str, httpx2.Response]()
        self._answer = running.orchestrator._answer
        monkeypatch.setattr(running.orchestrator, "_answer", self)

    async def __call__(self, request: httpx2.Request, path: str, body: bytes) -> httpx2.Response:
        if not re.fullmatch(r"/v1/sessions/s_[a-z0-9]+", path):
            return await self._answer(request, path, body)
        self.asked += 1
        return self.of.get(path.rpartition("/")[2], self.says)


def unknown() -> httpx2.Response:
    return problem(404, "Not found", "unknown-session")


async def approved(running: Running) -> None:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.orchestrator.approvals)


async def look(running: Running, later_s: float) -> None:
    """As it is done by itself again and again, so much later."""
    running.clock.now += later_s
    await running.holder.runner._end_unbegun()
    await running.until(lambda: all(queue.empty() for queue in running.holder.runner._queues.values()))
    await running.holder.runner.retention.sweep()


def trees(running: Running) -> list[str]:
    folder = running.holder.foundation.settings.data_dir / "trees"
    return [path.name for path in folder.iterdir() if SESSION in path.name]


async def test_what_the_orchestrator_does_not_know_goes(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await approved(running)
    views, ledger = Views(running, monkeypatch, unknown()), running.holder.ledger
    assert trees(running)
    await look(running, KEPT_S - 60)
    assert (views.asked, ledger.state(SESSION).ended) == (0, None)
    await look(running, 2 * DAY_S)
    await running.until(lambda: ledger.state(SESSION).ended is not None)
    await running.until(lambda: not trees(running))
    assert views.asked == 1
    await look(running, KEPT_S - 60)
    assert ledger.knows(SESSION), "it may be asked for a channel yet"
    await look(running, 120)
    assert not ledger.knows(SESSION)
    assert (await running.client.get(f"/v1/requests/{SESSION}")).status_code == 404


async def test_it_goes_on_if_a_channel_is_asked_for_after_all(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator's database was an old copy, and the newest is there again."""
    await approved(running)
    Views(running, monkeypatch, unknown())
    await look(running, KEPT_S + 60)
    await running.until(lambda: running.holder.ledger.state(SESSION).ended is not None)
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: running.orchestrator.proven)
    await running.until(lambda: running.holder.ledger.state(SESSION).ended is None)
    await look(running, 2 * KEPT_S)
    assert running.holder.ledger.state(SESSION).ended is None


ANSWERS: dict[str, Any] = {
    "it waits for another holder": lambda: httpx2.Response(200, json={"id": SESSION, "phase": "AWAITING_APPROVAL"}),
    "no session's view": lambda: httpx2.Response(200, json=["?"]),
    "another program's page": lambda: problem(404, "Not found", "not-found"),
    "not enrolled there": lambda: problem(401, "Not authenticated", "signature-key-unknown"),
    "not for this holder": lambda: problem(403, "Not permitted", "not-in-roster"),
    "away": lambda: problem(503, "Unavailable", "away"),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_it_knows_or_does_not_say_stays(
    running: Running, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    await approved(running)
    views = Views(running, monkeypatch, ANSWERS[answer]())
    await look(running, KEPT_S + 60)
    assert (views.asked, running.holder.ledger.state(SESSION).ended) == (1, None)
    await look(running, 60)
    heard = views.says.status_code != 503
    assert views.asked == (1 if heard else 2), "who has answered, whatever it was, is asked a day later"
    await look(running, DAY_S)
    assert views.asked == (2 if heard else 3)
    assert running.holder.ledger.state(SESSION).ended is None
    assert trees(running)


async def test_an_end_that_was_never_heard_of_is_heard_by_its_name(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And kept as any other: somebody knew the session."""
    await approved(running)
    Views(running, monkeypatch, httpx2.Response(200, json={"id": SESSION, "phase": "CANCELLED"}))
    await look(running, KEPT_S + 60)
    await running.until(lambda: running.holder.ledger.state(SESSION).ended == "CANCELLED")
    await look(running, 2 * KEPT_S)
    assert running.holder.ledger.knows(SESSION)


async def test_what_began_or_what_a_person_decided_is_asked_about_by_nobody(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(approve="manual") as running:
        views = Views(running, monkeypatch, unknown())
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        body = {"manifest": (await running.get(f"/v1/requests/{SESSION}"))["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).status_code == 200
        await look(running, KEPT_S + 60)
        assert (views.asked, running.holder.ledger.state(SESSION).ended) == (0, None)


async def test_what_has_a_channel_is_asked_about_by_nobody(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.approved_with_channel()
    views = Views(running, monkeypatch, unknown())
    await look(running, KEPT_S + 60)
    assert (views.asked, running.holder.ledger.state(SESSION).ended) == (0, None)


@pytest.mark.parametrize("stays_away", [False, True])
async def test_what_waits_behind_it_goes_with_it_and_is_not_approved_in_its_turn(
    running: Running, monkeypatch: pytest.MonkeyPatch, stays_away: bool
) -> None:
    """Each month another made-up id of one captured manifest was approved, its data read and hashed for it."""
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    ledger = running.holder.ledger
    ask(running, *IDS)
    await settled(running, 2)
    await running.until(lambda: said(running))
    [first] = said(running)
    running.orchestrator.items.clear()
    views = Views(running, monkeypatch, unknown())
    if stays_away:  # in the middle of it
        views.of[first] = problem(503, "Unavailable", "away")
    await look(running, KEPT_S + DAY_S)
    gone = {*IDS} - {first} if stays_away else {*IDS}
    await running.until(lambda: {one.session for one in ledger.states() if one.ended == UNNAMED} == gone)
    await running.until(lambda: not running.holder.runner._considering._taken)
    assert (views.asked, said(running)) == (3, {first: "approve"})
    views.of.clear()
    await look(running, KEPT_S + DAY_S)
    await running.until(lambda: ledger.find(first) is None or ledger.state(first).ended == UNNAMED)
    await look(running, KEPT_S + DAY_S)
    assert not any(ledger.knows(session) for session in IDS)
    assert said(running) == {first: "approve"}


async def test_what_nobody_decided_is_decided_after_all_if_it_is_asked_for_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the orchestrator knows waits as long as its operator likes."""
    async with start(approve="manual") as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        views = Views(running, monkeypatch, ANSWERS["it waits for another holder"]())
        await look(running, KEPT_S + 60)
        assert (views.asked, running.holder.ledger.state(SESSION).ended) == (1, None)
        views.says = unknown()
        await look(running, DAY_S + 60)
        await running.until(lambda: running.holder.ledger.state(SESSION).ended == UNNAMED)
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.state(SESSION).ended is None)


async def in_front(running: Running) -> None:
    """A session that has begun, and another of the same manifest that waits behind it."""
    await running.approved_with_channel()
    manifest = running.orchestrator.manifest
    assert manifest is not None
    running.orchestrator.ask_approval(manifest, session=IDS[1])
    await settled(running, 1)


async def test_what_stands_in_front_of_another_and_is_lost_goes_once_nothing_came_of_it_for_long(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator's database was put back to before it, and its owner submitted the manifest again: that waited for good."""
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    await in_front(running)
    views, ledger = Views(running, monkeypatch, unknown()), running.holder.ledger
    views.of[IDS[1]] = ANSWERS["it waits for another holder"]()
    await look(running, KEPT_S - DAY_S)
    assert (views.asked, ledger.state(SESSION).ended) == (1, None)
    await look(running, DAY_S + 60)
    await running.until(lambda: said(running).get(IDS[1]) == "approve")
    assert ledger.state(SESSION).ended == UNNAMED
    await look(running, KEPT_S + DAY_S)
    assert ledger.knows(SESSION), "it had begun"


async def test_what_stands_in_front_of_another_and_has_ended_is_heard_of_within_a_day(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    await in_front(running)
    Views(running, monkeypatch, httpx2.Response(200, json={"id": SESSION, "phase": "CANCELLED"}))
    await look(running, DAY_S + 60)
    await running.until(lambda: said(running).get(IDS[1]) == "approve")
    assert running.holder.ledger.state(SESSION).ended == "CANCELLED"


WRONG: dict[str, Any] = {
    "not for this holder": lambda: problem(403, "Not permitted", "not-in-roster"),
    "no key for it": lambda: problem(503, "Unavailable", AWAY),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_wrong_with_one_session_keeps_no_other(
    running: Running, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The first that was refused ended the looking, each time anew and for good."""
    for number, session in enumerate(IDS):
        ask(running, session, name=f"study-{number}")
    await running.until(lambda: len(said(running)) == len(IDS))
    views = Views(running, monkeypatch, unknown())
    first, *others = [state.session for state in running.holder.ledger.states()]
    views.of[first] = WRONG[wrong]()
    await look(running, KEPT_S + DAY_S)
    await running.until(lambda: all(running.holder.ledger.state(session).ended == UNNAMED for session in others))
    assert (views.asked, running.holder.ledger.state(first).ended) == (len(IDS), None)


async def test_an_approval_whose_former_key_is_lost_keeps_no_other(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(running, IDS[0])
    await running.until(lambda: said(running) == {IDS[0]: "approve"})
    running.orchestrator.items.clear()
    ledger, approvals = running.holder.ledger, running.holder.approvals
    monkeypatch.setattr(approvals, "keys", OwnKeys(PartyKey.generate()))
    await ledger.record("s_anotherone000000", [(REQUEST, request_body(ledger.state(IDS[0]).manifest, None))], another)
    views = Views(running, monkeypatch, unknown())
    await look(running, KEPT_S + DAY_S)
    await running.until(lambda: ledger.state("s_anotherone000000").ended == UNNAMED)
    assert (views.asked, ledger.state(IDS[0]).ended) == (1, None)


def another(connection: Connection) -> None:
    """The row of one that was asked for beside the session, and that nobody decided."""
    row = rows.request(connection, IDS[0]) | {
        "session": "s_anotherone000000",
        "state": "waiting",
        "decided_by": None,
        "delivered": False,
    }
    connection.execute(insert(REQUESTS).values(**row))
