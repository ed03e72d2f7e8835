"""What is kept of one session was damaged: what can be had again is, and what cannot stops that session and no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.data_holder.conftest import Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_world import SESSION
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


async def test_another_program_in_place_of_the_damaged_one_is_refused(
    start: Start, flipped: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as running:
        answering(running, monkeypatch, "/archive", lambda number: httpx2.Response(200, content=b"another"))
        answer = await running.client.get(f"/v1/requests/{SESSION}")
        assert answer.json()["code"] == "invalid-program"
