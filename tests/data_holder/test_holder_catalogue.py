"""Which file a holder trains on is said by its settings and its operator, never by whoever can write to its database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from data_holder import catalogue
from data_holder.datasets import DatasetOptions, open_dataset
from data_holder.settings import HolderSettings
from shared.claims.records import RecordField, RecordSchema
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, Unavailable
from shared.service.migrations import downgrade
from shared.service.retention import DAY_S
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_world import FEATURES, SESSION, LocalEvidence, make_manifest
from tests.data_holder.test_holder_approvals import asked

OTHER_RECORDS = 60  # ehr.npz has 50


def database(folder: Path) -> Path:
    return folder / "state" / "state.db"


def tamper(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(database(folder))) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A file that fits the program and that nobody named."""
    np.savez(tmp_path / "never-to-leave.npz", x=np.ones((OTHER_RECORDS, FEATURES), "<f4"))
    return tmp_path / "never-to-leave.npz"


async def test_a_row_that_somebody_changed_is_not_believed_and_healed_by_a_restart(
    start: Start, tmp_path: Path, other: Path
) -> None:
    async with start() as running:
        tamper(tmp_path, "UPDATE holder_datasets SET path = ? WHERE name = 'ehr'", str(other))
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.holder.ledger.knows(SESSION))
        shown = await waiting_for(running, SESSION, "dataset-unproven")
        assert shown["state"] == "waiting", "nothing is refused for good because of whoever owns the disk"
        assert not running.orchestrator.approvals
    async with start() as running:
        await running.until(lambda: running.orchestrator.approvals)
        assert [(said.decision, said.records) for said in running.orchestrator.approvals] == [("approve", 50)]


async def test_settings_win_over_a_row_of_another_start(start: Start, tmp_path: Path, other: Path) -> None:
    async with start(datasets={"ehr": other}):
        connection = sqlite3.connect(database(tmp_path))
        path, mac = connection.execute("SELECT path, mac FROM holder_datasets").fetchone()
        connection.close()
    assert path == str(other)
    async with start() as running:
        tamper(tmp_path, "UPDATE holder_datasets SET path = ?, mac = ? WHERE name = 'ehr'", path, mac)
        await asked(running)
        await running.until(lambda: running.orchestrator.approvals)
        assert running.orchestrator.approvals[0].records == 50


@pytest.mark.parametrize(
    "change",
    [
        "path = 'FILE'",
        """options = '{"label": "x"}'""",
        "mac = NULL",  # as a release of before left it
        "(path, mac) = (SELECT path, mac FROM holder_datasets WHERE name = 'ehr')",
    ],
)
async def test_an_added_dataset_that_is_not_believed_is_added_again(
    start: Start, tmp_path: Path, other: Path, change: str
) -> None:
    added = {"name": "added", "path": str(tmp_path / "ehr.npz")}
    async with start(approve="manual") as running:
        shown = await asked(running)
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        tamper(tmp_path, f"UPDATE holder_datasets SET {change.replace('FILE', str(other))} WHERE name = 'added'")
        about, body = {"session": SESSION}, {"manifest": shown["manifest"], "dataset": "added"}
        for method, path, sent in (
            ("POST", "/v1/datasets/added/inspect", about),
            ("PUT", "/v1/datasets/added/declaration", {"units": {"x": ["mg"]}}),
            ("POST", f"/v1/requests/{SESSION}/approve", body),
        ):
            answer = await running.client.request(method, path, json=sent)
            assert (answer.status_code, answer.json()["code"]) == (403, "dataset-unproven")
            assert "add it again" in answer.json()["remedy"]
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        assert (await running.client.post("/v1/datasets", json=added)).json()["code"] == "dataset-exists"
        approved = await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)
        assert (approved.status_code, running.orchestrator.approvals[0].records) == (200, 50)


async def declared(running: Running) -> dict[str, Any]:
    options: dict[str, Any] = (await running.get("/v1/datasets/ehr"))["options"]
    return options


async def test_what_was_declared_of_a_settings_dataset_stays_and_nobody_else_declares(
    start: Start, tmp_path: Path
) -> None:
    units = {"units": {"x": ["mg"]}}
    async with start() as running:
        assert (await running.client.put("/v1/datasets/ehr/declaration", json=units)).status_code == 200
    async with start() as running:
        assert await declared(running) == units
        taken = await running.client.post("/v1/datasets", json={"name": "ehr", "path": str(tmp_path)})
        assert (taken.status_code, taken.json()["code"]) == (409, "dataset-of-settings")
    tamper(tmp_path, "UPDATE holder_datasets SET options = replace(options, 'mg', 'kg')")
    async with start() as running:
        assert await declared(running) == {}


async def test_a_dataset_of_the_settings_is_changed_there_only(start: Start, tmp_path: Path, other: Path) -> None:
    """Else another file is shown than the one that is read, and approved."""
    async with start() as running:
        before = await running.get("/v1/datasets/ehr")
        for answer in (
            await running.client.delete("/v1/datasets/ehr"),
            await running.client.post("/v1/datasets", json={"name": "ehr", "path": str(other)}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "dataset-of-settings")
            assert "in the settings" in answer.json()["remedy"]
        assert await running.get("/v1/datasets/ehr") == before
    async with start(datasets={}, approve="manual") as running:  # no longer one of theirs, and no session's
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert (await running.get("/v1/datasets"))["items"] == []


async def waiting_for(running: Running, session: str, code: str) -> dict[str, Any]:
    """The request, once it says that it waits because of `code`."""
    for _ in range(6000):
        shown: dict[str, Any] = await running.get(f"/v1/requests/{session}")
        if code in shown["waiting_for"]:
            return shown
        await asyncio.sleep(0.01)
    raise AssertionError(f"{session} never waited because of {code}: {shown['waiting_for']}")


async def test_a_dataset_that_an_approved_session_uses_stays(start: Start, tmp_path: Path) -> None:
    added = {"name": "added", "path": str(tmp_path / "ehr.npz")}
    async with start(approve="manual") as running:
        shown = await asked(running)
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        body = {"manifest": shown["manifest"], "dataset": "added"}
        assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)).status_code == 200
        used = await running.client.delete("/v1/datasets/added")
        assert (used.status_code, used.json()["code"]) == (409, "dataset-in-use")
        assert (await running.get("/v1/datasets/added"))["source"] == "api"


async def test_a_dataset_of_the_settings_whose_name_no_request_can_give_is_served_and_said(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases took any name, and it is in what was approved: a start that ends at it leaves those sessions unserved."""
    log = Mock()
    monkeypatch.setattr(catalogue, "_log", log)
    policy = tmp_path / "capital.toml"
    policy.write_text(POLICY.replace('dataset = "ehr"', 'dataset = "EHR"'))
    options: dict[str, Any] = {
        "datasets": {"EHR": tmp_path / "ehr.npz", "ehr-2024": tmp_path / "ehr.npz"},
        "policy": policy,
    }
    async with start(**options) as running:
        await running.approved_with_channel()
    async with start(**options) as running:
        await running.until(running.open_channel)
        assert (await running.get(f"/v1/requests/{SESSION}"))["dataset"] == "EHR"
        named = await running.client.post(
            f"/v1/requests/{SESSION}/approve", json={"manifest": "0" * 64, "dataset": "EHR"}
        )
        assert (named.status_code, named.json()["code"]) == (422, "invalid-request")
        assert (await running.client.post("/v1/datasets", json={"name": "EHR", "path": "/x"})).status_code == 422
    said = [call.kwargs for call in log.warning.call_args_list if "no request can give" in call.args[0]]
    assert [one["dataset"] for one in said] == ["EHR", "EHR"], "at each start"
    assert all("have ended" in one["remedy"] for one in said)


def test_a_dataset_without_a_name_is_refused(tmp_path: Path) -> None:
    settings = {"name": "north", "orchestrator_url": "http://o.test", "evidence": "configfs-tsm:", "data_dir": tmp_path}
    with pytest.raises(ConfigurationError, match="datasets"):
        HolderSettings.load(**settings, datasets={"": tmp_path})


def test_a_dataset_whose_name_the_database_does_not_keep_is_refused(tmp_path: Path) -> None:
    """The start ended in what the database said of it; and one of SQLite's stays, for the sessions that were approved with it."""
    settings = {"name": "north", "orchestrator_url": "http://o.test", "evidence": "configfs-tsm:", "data_dir": tmp_path}
    elsewhere = {"database_url": "postgresql+psycopg://holder@db.test/holder"}
    kept = HolderSettings.load(**settings, **elsewhere, datasets={"x" * 64: tmp_path})
    assert list(kept.datasets) == ["x" * 64]
    with pytest.raises(ConfigurationError, match="no dataset's name of more than 64"):
        HolderSettings.load(**settings, **elsewhere, datasets={"x" * 65: tmp_path})
    assert HolderSettings.load(**settings, datasets={"x" * 65: tmp_path}).datasets


@pytest.mark.parametrize(
    "options", [{"columns": {"x": ["\ud800"]}}, {"columns": {"\ud800": ["x"]}}, {"units": {"\ud800": ["mg"]}}]
)
async def test_half_a_character_in_an_option_is_the_callers_fault(
    start: Start, tmp_path: Path, options: dict[str, Any]
) -> None:
    body = json.dumps({"name": "added", "path": str(tmp_path / "ehr.npz"), "options": options})
    async with start() as running:
        kind = {"content-type": "application/json"}
        assert (await running.client.post("/v1/datasets", content=body, headers=kind)).status_code == 422


async def test_a_database_of_before_goes_on_with_the_settings_datasets(start: Start, tmp_path: Path) -> None:
    async with start() as running:
        await asked(running)
        await running.until(lambda: running.orchestrator.approvals)
    downgrade(f"sqlite:///{database(tmp_path)}", "data_holder", "0004")
    async with start() as running:
        await running.approved_with_channel()
        about = await running.client.post("/v1/datasets/ehr/inspect", json={"session": SESSION})
        assert about.json()["fits"] is True


async def test_before_the_keys_are_there_datasets_are_listed_and_none_is_added(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: LocalEvidence, label: str) -> Secret:
        raise Unavailable("the enclave is away")

    monkeypatch.setattr(LocalEvidence, "derived_key", away)
    async with start(unlock=False) as running:
        assert [one["name"] for one in (await running.get("/v1/datasets"))["items"]] == ["ehr"]
        body = {"name": "added", "path": str(tmp_path / "ehr.npz")}
        answer = await running.client.post("/v1/datasets", json=body)
        assert (answer.status_code, answer.json()["code"]) == (503, "journal-locked")


async def test_what_was_converted_of_a_dataset_goes_when_it_is_forgotten(start: Start, tmp_path: Path) -> None:
    """It holds the records in the clear: whoever has deleted their source thinks that they are gone."""
    (tmp_path / "more.csv").write_text("x\n1\n")
    async with start() as running:
        cache = tmp_path / "state" / "converted"
        added = await running.client.post("/v1/datasets", json={"name": "more", "path": str(tmp_path / "more.csv")})
        assert added.status_code == 201, added.text
        schema = RecordSchema(fields=(RecordField(name="x", dtype="float32"),))
        open_dataset(tmp_path / "more.csv", schema, options=DatasetOptions(cache_dir=cache)).close()
        assert len(list(cache.glob("*.records"))) == 1
        await running.holder.runner.retention.sweep()
        assert len(list(cache.glob("*.records"))) == 1
        assert (await running.client.delete("/v1/datasets/more")).status_code == 204
        assert not list(cache.glob("*.records"))
        open_dataset(tmp_path / "more.csv", schema, options=DatasetOptions(cache_dir=cache)).close()
        await running.holder.runner.retention.sweep()
        assert not list(cache.glob("*.records"))
