"""A row that was damaged is shown as that, beside all the others; and a receipt's row keeps no end of a session from being told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from data_holder import runner
from data_holder.receipts import DAMAGED as DAMAGED_CHECK
from data_holder.rule_finding import DAMAGED as DAMAGED_FINDING
from data_holder.tables.schema import DATASETS, RECEIPTS, REQUESTS, VISITS
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_answers import answering
from tests.data_holder.holder_receipts import visited
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_catalogue import database, tamper
from tests.data_holder.test_holder_receipts import stored


class NoText(bytes):
    """Text that is no UTF-8, as a flipped bit makes it; other bytes would be kept as such."""


NO_JSON = ["{", "", "7", "[1]", '[{"check": 1}]', '[{"rule": "x"}]', "[" * 100_000, b"\xff", NoText(b"[\xff]")]
NO_OPTIONS = [
    "{", "", "7", "[]", '{"unknown": 1}', '{"separator": NaN}', "[" * 100_000, b"\xff", NoText(b"{\xff}"), '{"separator": 924}',
    '{"delimiter": ",,"}', '{"label": "\\ud800"}',
]  # fmt: skip


def damage(folder: Path, column: str, kept: Any, which: str = "true") -> None:
    """`column` with its table's name."""
    table, _, name = column.partition(".")
    value = "CAST(? AS TEXT)" if isinstance(kept, NoText) else "?"
    tamper(folder, f"UPDATE {table} SET {name} = {value} WHERE {which}", kept)


@pytest.mark.parametrize("kept", NO_OPTIONS)
async def test_options_of_a_dataset(start: Start, tmp_path: Path, kept: Any) -> None:
    async with start(approve="manual") as running:
        added = {"name": "added", "path": str(tmp_path / "ehr.npz"), "options": {"label": "y"}}
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        before = await running.get("/v1/datasets/added")
        assert (before["options"], before["fault"]) == ({"label": "y"}, None)
        damage(tmp_path, "holder_datasets.options", kept, "name = 'added'")
        shown, other = (await running.get("/v1/datasets"))["items"]
        assert (shown["name"], shown["options"]) == ("added", {})
        assert "add it again" in shown["fault"]
        assert (other["name"], other["fault"]) == ("ehr", None)
        assert await running.get("/v1/datasets/added") == shown
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        assert (await running.get("/v1/datasets/added"))["options"] == {"label": "y"}


async def test_where_a_dataset_comes_from(start: Start, tmp_path: Path) -> None:
    """It was a value that the list could not show."""
    async with start(approve="manual") as running:
        added = {"name": "added", "path": str(tmp_path / "ehr.npz")}
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        for name in ("added", "ehr"):
            tamper(tmp_path, f"UPDATE holder_datasets SET source = 'x' WHERE name = '{name}'")
        shown = {one["name"]: one["source"] for one in (await running.get("/v1/datasets"))["items"]}
        assert shown == {"added": "api", "ehr": "settings"}


@pytest.mark.parametrize("kept", NO_JSON)
async def test_findings_of_a_request(start: Start, tmp_path: Path, kept: Any) -> None:
    async with start() as running:
        await running.approved_with_channel()
        [before] = (await running.get("/v1/requests"))["items"]
        assert before["findings"]
        assert all(found["ok"] for found in before["findings"])
        damage(tmp_path, "holder_requests.findings", kept)
        [listed] = (await running.get("/v1/requests"))["items"]
        shown = await running.get(f"/v1/requests/{SESSION}")
        assert listed["findings"] == shown["findings"] == [DAMAGED_FINDING.as_json()]


async def test_what_a_request_is_told_apart_by(start: Start, tmp_path: Path) -> None:
    """Sessions' names, owners and programs, as the request in full has them; a program that is damaged has no name."""
    async with start() as running:
        await running.approved_with_channel()
        shown = await running.get(f"/v1/requests/{SESSION}")
        [listed] = (await running.get("/v1/requests"))["items"]
        told = {"name": shown["document"]["name"], "program_name": shown["program"]["name"], "owner": shown["owner"]}
        assert told["name"]
        assert told["program_name"]
        assert {name: listed[name] for name in told} == {name: shown[name] for name in told} == told
        for kept in (b"{}", "{}", 7):
            damage(tmp_path, "holder_requests.program", kept)
            [listed] = (await running.get("/v1/requests"))["items"]
            assert {name: listed[name] for name in told} == told | {"program_name": None}


@pytest.mark.parametrize("kept", NO_JSON)
async def test_checks_of_a_receipt(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
    """The end was never told, and the orchestrator was asked for everything anew at each try."""
    monkeypatch.setattr(runner, "TEND_S", 0.01)
    async with start() as running:
        document, report = await visited(running)
        running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
        assert (await stored(running))["verified"]
        damage(tmp_path, "holder_receipts.checks", kept)
        [shown] = (await running.get("/v1/receipts"))["items"]
        assert (shown["verified"], shown["checks"]) == (False, [DAMAGED_CHECK.as_json()])
        told = answering(running, monkeypatch, "/end", lambda number: None)
        running.orchestrator.post("ended", phase="COMPLETED")
        await running.until(lambda: told)
        shown = await stored(running)
        assert not shown["verified"], "whatever else is proven of it"
        assert [(check["check"], check["ok"]) for check in shown["checks"]] == [
            (DAMAGED_CHECK.check, False), ("log inclusion", True),
        ]  # fmt: skip


@pytest.mark.parametrize("kept", ["{", "[]", '{"total": NaN}', b"\xff", NoText(b"{\xff}")])
async def test_timers_of_a_visit(start: Start, tmp_path: Path, kept: Any) -> None:
    async with start() as running:
        await visited(running)
        [before] = (await running.get("/v1/visits"))["items"]
        assert before["timers"]
        damage(tmp_path, "holder_visits.timers", kept)
        assert (await running.get("/v1/visits"))["items"] == [before | {"timers": None}]


async def test_a_flipped_bit_takes_away_neither_the_sweep_nor_the_start(start: Start, tmp_path: Path) -> None:
    """SQLite's driver refused the whole statement that met it."""
    async with start() as running:
        await visited(running)
        for column in ("holder_datasets.options", "holder_requests.reason", "holder_visits.timers"):
            damage(tmp_path, column, NoText(b"{\xff}"))
        await running.holder.runner.retention.sweep()
    async with start() as running:
        [dataset], [request] = [(await running.get(f"/v1/{what}"))["items"] for what in ("datasets", "requests")]
        assert (dataset["options"], dataset["fault"]) == ({}, None), "the settings say it again"
        assert (request["session"], request["reason"]) == (SESSION, "{\N{REPLACEMENT CHARACTER}}")


TABLES = {"datasets": DATASETS, "requests": REQUESTS, "visits": VISITS, "receipts": RECEIPTS}
SORTS: list[Any] = [NoText(b"[\xff]"), b"\xff", "x", float("inf")]
"""What a flipped bit makes of a cell, or of its type."""
TOLD = {
    "holder_requests.state": "state", "holder_requests.decided_by": "decided_by", "holder_requests.decided_at": "decided_at",
    "holder_requests.reason": "reason", "holder_requests.dataset": "dataset", "holder_receipts.backend": "backend",
    "holder_receipts.epoch": "epoch", "holder_receipts.closed_at": "closed_at",
}  # fmt: skip


async def whole(running: Running) -> None:
    """A row in each of the tables."""
    document, report = await visited(running)
    running.orchestrator.close_visit(running.orchestrator.make_receipt(document, report))
    assert (await stored(running))["verified"]


@pytest.mark.parametrize("path", TABLES)
async def test_whatever_cell_is_damaged_its_row_is_shown(start: Start, tmp_path: Path, path: str) -> None:
    """What could not be shown of one row took all the others away."""
    table = TABLES[path]
    async with start() as running:
        await whole(running)
        [before] = (await running.get(f"/v1/{path}"))["items"]
        assert before["fault"] is None
        for column in table.c:
            if column.primary_key:
                continue
            with closing(sqlite3.connect(database(tmp_path))) as connection:
                [kept] = connection.execute(f'SELECT "{column.name}" FROM {table.name}').fetchone()
            for sort in SORTS:
                damage(tmp_path, f'{table.name}."{column.name}"', sort)
                [shown] = (await running.get(f"/v1/{path}"))["items"]
                assert {**shown, "fault": None}.keys() == before.keys()
                await running.holder.runner.retention.sweep()
            tamper(tmp_path, f'UPDATE {table.name} SET "{column.name}" = ?', kept)
        assert (await running.get(f"/v1/{path}"))["items"] == [before]


async def test_what_is_damaged_is_told_by_what_is_signed(start: Start, tmp_path: Path) -> None:
    """Of a request the journal says it, of a receipt its own bytes."""
    async with start() as running:
        await whole(running)
        for place, name in TOLD.items():
            path = f"/v1/{place.partition('.')[0].removeprefix('holder_')}"
            [before] = (await running.get(path))["items"]
            damage(tmp_path, place, b"\xff" if name == "reason" or name == "dataset" else "x")
            [shown] = (await running.get(path))["items"]
            assert name in shown["fault"]
            assert shown[name] == pytest.approx(before[name], abs=1)
        detail = await running.get(f"/v1/requests/{SESSION}")
        assert (detail["state"], detail["decided_by"], detail["dataset"]) == ("approved", "policy", "ehr")
        assert "state" in detail["fault"]
        tamper(tmp_path, "UPDATE holder_requests SET manifest = 'x'")
        assert await running.get(f"/v1/requests/{SESSION}") == detail, "the bytes that were approved are in the journal"
