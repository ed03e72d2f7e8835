"""What is kept of one session was damaged: what can be had again is, and what cannot stops that session and no other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from data_holder import ledger, runner
from data_holder.protocol.state import DECISION
from shared.errors import GputError
from shared.service.retention import DAY_S
from shared.service.vocabulary import Vocabulary
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import FEATURES, SESSION, make_archive, make_manifest, problem, write_dataset
from tests.data_holder.test_holder_approvals import asked
from tests.data_holder.test_holder_catalogue import database, tamper
from tests.data_holder.test_holder_visits import visit


def program(folder: Path) -> bytes:
    with closing(sqlite3.connect(database(folder))) as connection:
        return bytes(connection.execute("SELECT program FROM holder_requests").fetchone()[0])


@pytest.fixture
async def flipped(start: Start, tmp_path: Path) -> bytes:
    """The program of an approved session, which has one flipped bit since the holder stopped."""
    async with start() as running:
        await running.approved_with_channel()
        running.orchestrator.proven = None
        running.orchestrator.items.clear()  # the next start opens its channel by itself, and is asked for no second one
    whole = program(tmp_path)
    middle = len(whole) // 2
    tamper(
        tmp_path,
        "UPDATE holder_requests SET program = ?",
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    )
    return whole


async def test_a_damaged_program_is_fetched_anew_and_the_session_served(
    start: Start, tmp_path: Path, flipped: bytes
) -> None:
    """Every offer was refused for good, though the manifest says which program it is, and the orchestrator has it."""
    async with start() as running:
        await running.until(lambda: running.orchestrator.proven and running.open_channel())
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert program(tmp_path) == flipped
        assert (await running.get(f"/v1/requests/{SESSION}"))["program"]["digest"]


async def test_a_damaged_program_is_shown_once_it_can_be_fetched(
    start: Start, tmp_path: Path, flipped: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as running:
        away = [httpx2.Response(503)]
        asked = answering(running, monkeypatch, "/archive", lambda number: away[0] if away else None)
        shown = await running.get(f"/v1/requests/{SESSION}")
        assert (shown["state"], shown["program"]) == ("approved", None)
        away.clear()
        assert (await running.get(f"/v1/requests/{SESSION}"))["program"]["digest"]
        assert program(tmp_path) == flipped
        before = len(asked)
        await running.get(f"/v1/requests/{SESSION}")
        assert len(asked) == before, "it is whole again"


GONE: dict[str, Callable[[], httpx2.Response]] = {
    "unknown": lambda: problem(404, "Not found", "unknown-program"),
    "not for this holder": lambda: problem(403, "Not permitted", "not-in-roster"),
    "no archive": lambda: httpx2.Response(200, content=b"another"),
    "another program's": lambda: httpx2.Response(200, content=make_archive(FEATURES + 1)),
}


@pytest.mark.parametrize("gone", GONE)
async def test_a_decision_is_answered_although_the_damaged_program_cannot_be_had_again(
    start: Start, flipped: bytes, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """It was signed and stored, and its answer an error; what is decided by the program still is refused."""
    async with start(approve="manual") as running:
        answering(running, monkeypatch, "/archive", lambda number: GONE[gone]())
        shown = await running.get(f"/v1/requests/{SESSION}")
        assert (shown["state"], shown["program"]) == ("approved", None)
        with pytest.raises(GputError):
            await running.holder.approvals.show(SESSION)
        said = {"manifest": shown["manifest"], "reason": "consent"}
        answer = await running.client.post(f"/v1/requests/{SESSION}/veto", json=said)
        assert (answer.status_code, answer.json()["state"], answer.json()["program"]) == (200, "vetoed", None)
        await running.until(lambda: running.orchestrator.approvals[-1].decision == "veto")


async def test_a_refusal_is_answered_although_the_damaged_program_cannot_be_had_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(approve="manual") as running:
        manifest = (await asked(running))["manifest"]
        running.orchestrator.items.clear()
    tamper(tmp_path, "UPDATE holder_requests SET program = x'00'")
    async with start(approve="manual") as running:
        answering(running, monkeypatch, "/archive", lambda number: GONE["unknown"]())
        answer = await running.client.post(f"/v1/requests/{SESSION}/refuse", json={"manifest": manifest})
        assert (answer.status_code, answer.json()["state"], answer.json()["program"]) == (200, "refused", None)


LATER = "s_00000000000later"
CHANGES = {
    "a time": f"UPDATE journal SET at = at + 1 WHERE seq = 1 AND stream = '{LATER}'",
    "no text": f"UPDATE journal SET body = CAST(x'7bff7d' AS TEXT) WHERE seq = 1 AND stream = '{LATER}'",
    "no bytes": f"UPDATE journal SET chain = 'abc' WHERE seq = 1 AND stream = '{LATER}'",
    "a row is gone": f"UPDATE journal SET seq = 2 WHERE seq = 1 AND stream = '{LATER}'",
}


async def two_sessions(start: Start) -> None:
    """One that is approved, and one that has been asked for."""
    async with start(approve="manual") as running:
        shown = await asked(running)
        body = {"manifest": shown["manifest"], "dataset": "ehr"}
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).status_code == 200
        before = running.orchestrator.manifest
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), name="study-2"))
        running.orchestrator.items[-1]["session"] = LATER
        await running.until(lambda: running.holder.ledger.knows(LATER))
        running.orchestrator.manifest = before


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_journal_stops_its_session_and_no_other(start: Start, tmp_path: Path, change: str) -> None:
    """The whole holder did not start, for one row of one session."""
    await two_sessions(start)
    tamper(tmp_path, CHANGES[change])
    async with start(approve="manual") as running:
        assert (await running.client.get("/readyz")).status_code == 200
        by_session = {one["session"]: one for one in (await running.get("/v1/requests"))["items"]}
        assert by_session[SESSION]["fault"] is None
        assert "journal-tampered" in by_session[LATER]["fault"]
        for answer in (
            await running.client.get(f"/v1/requests/{LATER}"),
            await running.client.post(f"/v1/requests/{LATER}/refuse", json={"manifest": by_session[LATER]["manifest"]}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "journal-tampered")
        await running.holder.runner.retention.sweep()
        await served(running)
        assert running.holder.ledger.knows(LATER), "what is asked again is no new session"
        assert running.holder.ledger.find(LATER) is None


async def served(running: Running) -> None:
    running.orchestrator.post("channel_wanted")
    await running.until(lambda: running.orchestrator.proven and running.open_channel())
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)


async def test_what_the_orchestrator_says_of_a_refused_session_ends_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_sessions(start)
    tamper(tmp_path, CHANGES["a time"])
    async with start(approve="manual") as running:
        log = Mock()
        monkeypatch.setattr(runner, "_log", log)
        for kind, more in (("channel_wanted", {}), ("share_wanted", {}), ("ended", {"phase": "CANCELLED"})):
            running.orchestrator.post(kind, **more)
            running.orchestrator.items[-1]["session"] = LATER
        said = log.error.call_args_list
        await running.until(lambda: [call.kwargs["kind"] for call in said if "kind" in call.kwargs][-1:] == ["ended"])
        assert {call.kwargs["code"] for call in said} == {"journal-tampered"}
        await running.until(lambda: LATER not in running.holder.runner._workers)
        await served(running)
    async with start(approve="manual") as running:
        [row] = [one for one in (await running.get("/v1/requests"))["items"] if one["session"] == LATER]
        assert (row["state"], "journal-tampered" in row["fault"]) == ("waiting", True)


async def test_a_row_that_bears_no_sessions_name_stops_the_holder(start: Start, tmp_path: Path) -> None:
    """It is missing from some session, which verifies without it where it was the last: nobody can say which was vetoed."""
    await two_sessions(start)
    newest = f"WHERE stream = '{SESSION}' AND seq = (SELECT max(seq) FROM journal WHERE stream = '{SESSION}')"
    for name in ("'s_0123456789abcdeg'", "CAST(x'73ff' AS TEXT)"):
        tamper(tmp_path, f"UPDATE journal SET stream = {name} {newest}")
        async with start(approve="manual", unlock=False) as running:
            for _ in range(6000):
                answer = await running.client.get("/readyz")
                if "journal-tampered" in answer.text:
                    break
                await asyncio.sleep(0.01)
            assert "journal-tampered" in answer.text
        tamper(tmp_path, f"UPDATE journal SET stream = '{SESSION}' WHERE stream = {name}")


async def uses_a_dataset(start: Start, folder: Path, **settings: Any) -> None:
    """One of two sessions was approved with `added`, which the settings name or else the operator adds."""
    write_dataset(folder / "added.npz")
    async with start(approve="manual", **settings) as running:
        if not settings:
            added = {"name": "added", "path": str(folder / "added.npz")}
            assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        body = {"manifest": (await asked(running))["manifest"], "dataset": "added"}
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).status_code == 200
        manifest = make_manifest(running.orchestrator_key(), name="study-2")
        running.orchestrator.ask_approval(manifest, session=LATER)
        await running.until(lambda: running.holder.ledger.knows(LATER))
        running.orchestrator.items.clear()


async def names(running: Running) -> set[str]:
    return {one["name"] for one in (await running.get("/v1/datasets"))["items"]}


OF_APPROVED = f"UPDATE journal SET at = at + 1 WHERE seq = 1 AND stream = '{SESSION}'"


async def test_a_changed_journal_keeps_no_dataset(start: Start, tmp_path: Path) -> None:
    """Its session can be neither served nor vetoed, and was counted as using it: what was converted of it stayed for good."""
    await uses_a_dataset(start, tmp_path)
    async with start(approve="manual") as running:
        answer = await running.client.delete("/v1/datasets/added")
        assert (answer.status_code, answer.json()["code"]) == (409, "dataset-in-use")
    tamper(tmp_path, OF_APPROVED)
    async with start(approve="manual") as running:
        assert (await running.client.delete("/v1/datasets/added")).status_code == 204
        assert await names(running) == {"ehr"}


@pytest.mark.parametrize("journal", ["changed", "of a newer release"])
async def test_what_the_settings_name_no_more_goes_unless_its_session_may_be_served_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    await uses_a_dataset(start, tmp_path, datasets={"added": tmp_path / "added.npz"})
    if journal == "changed":
        tamper(tmp_path, OF_APPROVED)
    else:
        versions = {**ledger.VOCABULARY.versions, DECISION: 1}
        monkeypatch.setattr(ledger, "VOCABULARY", Vocabulary(versions, {}, ledger.VOCABULARY.added))
    async with start(approve="manual") as running:
        refusal = running.holder.ledger.refusal(SESSION)
        assert refusal is not None
        assert refusal.code == ("journal-tampered" if journal == "changed" else "newer-journal")
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert await names(running) == ({"ehr"} if journal == "changed" else {"added", "ehr"})
