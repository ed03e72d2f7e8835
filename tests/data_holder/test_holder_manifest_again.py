"""One manifest under several ids: the policy approves one at a time, and a person whatever they want."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from data_holder import catalogue, considering, runner
from data_holder.identity import OwnKeys
from data_holder.once_at_a_time import MANIFEST_AGAIN
from shared.crypto.signing import PartyKey
from tests.adversary.rows import attack
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_world import make_manifest

IDS = [f"s_{number:016d}" for number in range(3)]
OWNER = PartyKey.generate(lambda n: b"\x09" * n)
BEHIND = f"this holder's operator ({MANIFEST_AGAIN}: session "


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    monkeypatch.setattr(considering, "FIRST_PAUSE_S", 0.01)


def ask(running: Running, *sessions: str, **changes: Any) -> None:
    """Show the very same manifest, which its owner signed once, for each of these sessions."""
    manifest = make_manifest(running.orchestrator_key(), **changes)
    for session in sessions:
        running.orchestrator.ask_approval(manifest, OWNER, session=session)


def said(running: Running) -> dict[str, str]:
    return {word.session: word.decision for word in running.orchestrator.approvals}


async def shown(running: Running) -> dict[str, dict[str, Any]]:
    return {one["session"]: one for one in (await running.get("/v1/requests"))["items"]}


async def settled(running: Running, behind: int) -> set[str]:
    """Sessions that were put before a person, once they are so many and nothing is considered any more."""
    for _ in range(2000):
        found = {name for name, one in (await shown(running)).items() if (one["waiting_for"] or "").startswith(BEHIND)}
        if len(found) == behind and not running.holder.runner._considering._taken:
            return found
        await running.until(lambda: True)
    raise AssertionError(await shown(running))


@attack("V15", any="stopped: the policy approves one session of a manifest at a time")
async def test_one_manifest_under_three_ids_is_approved_once(running: Running) -> None:
    ask(running, *IDS)
    behind = await settled(running, 2)
    await running.until(lambda: said(running))
    [(first, decision)] = said(running).items()
    assert decision == "approve"
    assert behind == {*IDS} - {first}
    trees = running.holder.foundation.settings.data_dir / "trees"
    assert len({path.name.split(".")[0] for path in trees.iterdir()}) == 1
    for session in behind:
        request = await running.get(f"/v1/requests/{session}")
        found = request["findings"][-1]
        assert (request["state"], found["rule"], found["ok"]) == ("waiting", MANIFEST_AGAIN, False)
        assert found["got"] == f"session {first} goes on"


async def test_none_is_read_for_while_the_first_is_being_approved(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and hashing may take hours, in which nothing is decided yet."""
    count, free, inspect = list[str](), threading.Event(), catalogue.inspect_dataset

    def held(*arguments: Any, **options: Any) -> Any:
        count.append("read")
        assert free.wait(60)
        return inspect(*arguments, **options)

    monkeypatch.setattr(catalogue, "inspect_dataset", held)
    ask(running, IDS[0])
    await running.until(lambda: count)
    ask(running, *IDS[1:])
    for _ in range(2000):
        if sum((one["waiting_for"] or "").startswith(BEHIND) for one in (await shown(running)).values()) == 2:
            break
        await running.until(lambda: True)
    assert count == ["read"]
    free.set()
    await running.until(lambda: said(running) == {IDS[0]: "approve"})
    assert await settled(running, 2) == {*IDS[1:]}


async def test_the_next_does_not_wait_for_what_is_read_for_one_that_has_ended(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end stood behind its own reading, which may take hours, and it was approved after its owner had cancelled it."""
    count, free, inspect = list[str](), threading.Event(), catalogue.inspect_dataset

    def held(*arguments: Any, **options: Any) -> Any:
        count.append("read")
        assert len(count) > 1 or free.wait(600)
        return inspect(*arguments, **options)

    monkeypatch.setattr(catalogue, "inspect_dataset", held)
    try:
        ask(running, IDS[0])
        await running.until(lambda: count)
        ask(running, IDS[1])
        await settled_behind(running, IDS[1])
        running.orchestrator.post("ended", session=IDS[0], phase="CANCELLED")
        await running.until(lambda: said(running) == {IDS[1]: "approve"})
        assert running.holder.ledger.state(IDS[0]).ended == "CANCELLED"
    finally:
        free.set()
    await running.until(lambda: not running.holder.runner._considering._taken)
    assert said(running) == {IDS[1]: "approve"}
    assert running.holder.ledger.state(IDS[0]).decision is None


async def settled_behind(running: Running, session: str) -> None:
    for _ in range(2000):
        if ((await shown(running)).get(session, {}).get("waiting_for") or "").startswith(BEHIND):
            return
        await running.until(lambda: True)
    raise AssertionError(await shown(running))


async def test_what_has_ended_before_its_turn_is_not_read_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is busy with what was said before."""
    read, wait = list[str](), asyncio.Event()
    inspect = catalogue.inspect_dataset
    monkeypatch.setattr(catalogue, "inspect_dataset", lambda *a, **o: read.append("read") or inspect(*a, **o))
    honest = running.holder.approvals.receive

    async def slow(session: str, *rest: Any) -> None:
        await honest(session, *rest)
        await wait.wait()

    monkeypatch.setattr(running.holder.approvals, "receive", slow)
    ask(running, IDS[0])
    await running.until(lambda: running.holder.ledger.knows(IDS[0]))
    await running.until(lambda: running.holder.runner._considering._taken)
    running.orchestrator.post("ended", session=IDS[0], phase="CANCELLED")
    queue = running.holder.runner._queues[IDS[0]]
    await running.until(lambda: queue.qsize() == 2)  # behind what was to be considered
    wait.set()
    await running.until(lambda: running.holder.ledger.state(IDS[0]).ended == "CANCELLED")
    assert (read, said(running)) == ([], {})
    assert not running.holder.runner._considering._left


@pytest.mark.parametrize("how", ["its end", "a veto"])
async def test_the_next_follows_by_itself_once_the_first_is_over(running: Running, how: str) -> None:
    """An owner that submits the same manifest again waits for nobody."""
    ask(running, IDS[0])
    await running.until(lambda: said(running) == {IDS[0]: "approve"})
    ask(running, *IDS[1:])
    await settled(running, 2)
    if how == "a veto":
        body = {"manifest": (await running.get(f"/v1/requests/{IDS[0]}"))["manifest"]}
        assert (await running.client.post(f"/v1/requests/{IDS[0]}/veto", json=body)).status_code == 200
    else:
        running.orchestrator.post("ended", session=IDS[0], phase="CANCELLED")
    await running.until(lambda: len(said(running)) == 2)
    [second] = {*said(running)} - {IDS[0]}
    assert said(running)[second] == "approve"
    assert await settled(running, 1) == {*IDS[1:]} - {second}


async def test_a_person_may_approve_another_one_beside_it(running: Running) -> None:
    ask(running, IDS[0])
    await running.until(lambda: said(running) == {IDS[0]: "approve"})
    ask(running, IDS[1])
    await settled(running, 1)
    body = {"manifest": (await running.get(f"/v1/requests/{IDS[1]}"))["manifest"], "dataset": "ehr"}
    assert (await running.client.post(f"/v1/requests/{IDS[1]}/approve", json=body)).status_code == 200
    await running.until(lambda: said(running) == dict.fromkeys(IDS[:2], "approve"))
    await running.until(lambda: not running.holder.approvals.once._behind)
    for session in IDS[:2]:  # each has another beside it, and nobody has to think of that any more
        found = (await running.get(f"/v1/requests/{session}"))["findings"]
        assert MANIFEST_AGAIN not in {finding["rule"] for finding in found}


async def test_after_a_restart_it_is_still_one(start: Start) -> None:
    async with start() as running:
        ask(running, IDS[0])
        await running.until(lambda: said(running) == {IDS[0]: "approve"})
        ask(running, *IDS[1:])
        await settled(running, 2)
        running.orchestrator.items.clear()
    async with start() as running:
        assert await settled(running, 2) == {*IDS[1:]}
        assert said(running) == {IDS[0]: "approve"}


async def test_what_the_policy_forbids_is_refused_whoever_asks_beside_it(start: Start) -> None:
    async with start(approve="manual") as running:
        ask(running, IDS[0], rounds=20)
        await running.until(lambda: running.holder.ledger.knows(IDS[0]))
        body = {"manifest": (await running.get(f"/v1/requests/{IDS[0]}"))["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{IDS[0]}/approve", json=body)).status_code == 200
        ask(running, IDS[1], rounds=20)
        await running.until(lambda: running.holder.ledger.knows(IDS[1]))
        for _ in range(2000):  # to who decides by hand it is said as well
            if (findings := (await running.get(f"/v1/requests/{IDS[1]}"))["findings"]) != []:
                break
        assert (findings[-1]["rule"], findings[-1]["ok"]) == (MANIFEST_AGAIN, False)
        running.orchestrator.items.clear()
    assert "max_rounds = 10" in POLICY
    async with start() as running:
        await running.until(lambda: said(running).get(IDS[1]) == "refuse")


async def test_two_manifests_of_one_owner_are_two(running: Running) -> None:
    ask(running, IDS[0])
    ask(running, IDS[1], name="another")
    await running.until(lambda: said(running) == dict.fromkeys(IDS[:2], "approve"))


async def test_what_is_said_of_the_other_one_is_of_now(start: Start) -> None:
    """It was written once: never where the other was approved later, and for good where it has ended. The policy, asked, did not say it."""
    async with start(approve="manual") as running:
        ask(running, *IDS[:2])
        await running.until(lambda: all(running.holder.ledger.knows(session) for session in IDS[:2]))
        await found(running, IDS[1], again=False)
        body = {"manifest": (await running.get(f"/v1/requests/{IDS[0]}"))["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{IDS[0]}/approve", json=body)).status_code == 200
        await found(running, IDS[1], again=True)
        await found(running, IDS[0], again=False)
        running.orchestrator.post("ended", session=IDS[0], phase="CANCELLED")
        await running.until(lambda: running.holder.ledger.state(IDS[0]).ended is not None)
        await found(running, IDS[1], again=False)


async def found(running: Running, session: str, *, again: bool) -> None:
    """In the list, in full, and where the policy is asked: whether another session of the manifest goes on, and nothing else is wrong."""
    checked = (await running.client.post("/v1/policy/check", json={"session": session})).json()
    assert checked["allowed"] is not again
    for one in (checked, await running.get(f"/v1/requests/{session}"), (await shown(running))[session]):
        wrong = [finding["rule"] for finding in one["findings"] if not finding["ok"]]
        assert wrong == ([MANIFEST_AGAIN] if again else [])


async def test_it_is_said_as_well_where_nobody_can_tell_whether_the_other_one_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former key is lost that signed the other one's decision; both are shown, and neither is allowed."""
    async with start(approve="manual") as running:
        ask(running, IDS[0])
        await running.until(lambda: running.holder.ledger.knows(IDS[0]))
        body = {"manifest": (await running.get(f"/v1/requests/{IDS[0]}"))["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{IDS[0]}/approve", json=body)).status_code == 200
        ask(running, IDS[1])
        await running.until(lambda: running.holder.ledger.knows(IDS[1]))
        monkeypatch.setattr(running.holder.approvals, "keys", OwnKeys(PartyKey.generate()))
        [finding] = [one for one in (await shown(running))[IDS[1]]["findings"] if one["rule"] == MANIFEST_AGAIN]
        assert (finding["ok"], finding["got"].startswith("not known (")) == (False, True)
