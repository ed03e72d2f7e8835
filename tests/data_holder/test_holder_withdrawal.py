"""Datasets that the settings do not name any more: what they still serve, and how long what is known of them stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from data_holder import withdrawal
from data_holder.datasets import DatasetOptions, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.crypto.secret import Secret
from shared.errors import Unavailable
from shared.service.retention import DAY_S
from tests.data_holder.conftest import Start
from tests.data_holder.holder_world import SESSION, LocalEvidence, make_manifest
from tests.data_holder.test_holder_approvals import asked
from tests.data_holder.test_holder_catalogue import tamper, waiting_for
from tests.data_holder.test_holder_visits import visit

LATER = "s_00000000000later"


async def test_a_start_that_misses_a_dataset_loses_nothing_of_it_for_a_day(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One misspelt setting lost what its operator had declared, which nobody else has, and hours of converting."""
    log = Mock()
    monkeypatch.setattr(withdrawal, "_log", log)
    table = tmp_path / "t.csv"
    table.write_text("x\n1\n")
    named: dict[str, Any] = {"datasets": {"ehr": table}, "approve": "manual"}
    units = {"units": {"x": ["mg"]}}
    cache = tmp_path / "state" / "converted"
    async with start(**named) as running:
        assert (await running.client.put("/v1/datasets/ehr/declaration", json=units)).status_code == 200
        schema = RecordSchema(fields=(RecordField(name="x", dtype="float32"),))
        open_dataset(table, schema, options=DatasetOptions(cache_dir=cache)).close()
        running.clock.now += 100 * DAY_S
    for _ in range(2):  # also of a holder that starts ever again
        async with start(datasets={}, approve="manual") as running:
            running.clock.now += DAY_S / 3
            await running.holder.runner.retention.sweep()
            shown = await running.get("/v1/datasets/ehr")
            assert (shown["source"], shown["options"]) == ("withdrawn", units)
            assert len(list(cache.glob("*.records"))) == 1
    [said] = log.warning.call_args_list
    assert "within a day" in said.kwargs["remedy"]
    async with start(**named) as running:
        shown = await running.get("/v1/datasets/ehr")
        assert (shown["source"], shown["options"]) == ("settings", units)
    log.reset_mock()
    async with start(datasets={}, approve="manual") as running:
        running.clock.now += DAY_S / 2
    async with start(datasets={}, approve="manual") as running:
        running.clock.now += DAY_S / 2
        await running.holder.runner.retention.sweep()
        assert (await running.get("/v1/datasets"))["items"] == []
        assert not list(cache.glob("*.records"))
    assert [call.kwargs.get("declared") for call in log.warning.call_args_list] == [None, units]


async def test_what_its_operator_takes_out_of_the_settings_serves_only_sessions_that_were_approved_before(
    start: Start, tmp_path: Path
) -> None:
    """By hand, and by a policy that goes on: `dataset` may be named there, and nobody looks at every approval."""
    async with start() as running:
        await running.approved_with_channel()
    kept = {"others": tmp_path / "ehr.npz"}  # the same records under another name: else the file is gone as well
    async with start(datasets=kept) as running:
        assert {one["name"]: one["source"] for one in (await running.get("/v1/datasets"))["items"]} == {
            "ehr": "withdrawn", "others": "settings",
        }  # fmt: skip
        before = running.orchestrator.manifest
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), name="study-2"))
        running.orchestrator.items[-1]["session"] = LATER
        await running.until(lambda: running.holder.ledger.knows(LATER))
        about, later = {"session": SESSION}, await waiting_for(running, LATER, "dataset-withdrawn")
        for path, sent in (
            ("/v1/datasets/ehr/inspect", about),
            (f"/v1/requests/{LATER}/approve", {"manifest": later["manifest"], "dataset": "ehr"}),
        ):
            answer = await running.client.post(path, json=sent)
            assert (answer.status_code, answer.json()["code"]) == (409, "dataset-withdrawn")
            assert "settings" in answer.json()["remedy"]
        assert await running.holder.approvals.unknown_datasets() == ["ehr"]  # its log says so at each start

        running.orchestrator.manifest, running.orchestrator.proven = before, None
        running.orchestrator.post("channel_wanted")
        await running.until(lambda: running.orchestrator.proven and running.open_channel())
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].records == 20
        await running.holder.runner.retention.sweep()
        assert (await running.get("/v1/datasets/ehr"))["source"] == "withdrawn"

        running.orchestrator.post("ended", phase="CANCELLED")
        await running.until(lambda: running.holder.ledger.state(SESSION).ended)
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert [one["name"] for one in (await running.get("/v1/datasets"))["items"]] == ["others"]
    async with start() as running:  # named again
        await running.until(lambda: len({a.session for a in running.orchestrator.approvals}) == 2)


@pytest.mark.parametrize("options", ["{", '{"separator": 924}', '{"label": "\\ud800"}'])
async def test_one_whose_options_are_damaged_is_forgotten_and_said_like_the_others(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    """What was to be said of it ended the sweep, after its row was gone: no later one said it either."""
    log = Mock()
    monkeypatch.setattr(withdrawal, "_log", log)
    async with start(approve="manual"):
        pass
    async with start(datasets={}, approve="manual") as running:
        tamper(tmp_path, "UPDATE holder_datasets SET options = ?", options)
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert (await running.get("/v1/datasets"))["items"] == []
    assert [call.kwargs.get("declared") for call in log.warning.call_args_list] == [None, {}]


async def test_one_that_is_withdrawn_since_no_time_at_all_counts_from_the_next_start_on(
    start: Start, tmp_path: Path
) -> None:
    """A damaged time ended every sweep, or was long past."""
    async with start(approve="manual"):
        pass
    for damaged in ("'x'", "-1e999"):
        async with start(datasets={}, approve="manual") as running:
            tamper(tmp_path, f"UPDATE holder_datasets SET added_at = {damaged}")
            await running.holder.runner.retention.sweep()
            assert (await running.get("/v1/datasets/ehr"))["source"] == "withdrawn"
    async with start(datasets={}, approve="manual") as running:
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert (await running.get("/v1/datasets"))["items"] == []


def converted(tmp_path: Path, table: Path) -> list[Path]:
    """What was converted, after `table` is."""
    cache = tmp_path / "state" / "converted"
    schema = RecordSchema(fields=(RecordField(name="x", dtype="float32"),))
    if table.exists():
        open_dataset(table, schema, options=DatasetOptions(cache_dir=cache)).close()
    return list(cache.glob("*.records"))


async def test_a_misspelt_path_loses_nothing_that_was_converted_for_a_day(start: Start, tmp_path: Path) -> None:
    """The first sweep removed it at once: hours of converting."""
    table = tmp_path / "t.csv"
    table.write_text("x\n1\n")
    right: dict[str, Any] = {"datasets": {"ehr": table}, "approve": "manual"}
    async with start(**right) as running:
        made = converted(tmp_path, table)
        await running.holder.runner.retention.sweep()
    for wrong in ("misspelt.csv", "misspelt.csv", "misspelt again.csv"):  # also of a holder that starts ever again
        async with start(datasets={"ehr": tmp_path / wrong}, approve="manual") as running:
            running.clock.now += DAY_S / 4
            await running.holder.runner.retention.sweep()
            kept = {one["path"]: one["source"] for one in (await running.get("/v1/datasets"))["items"]}
            assert (kept[str(tmp_path / wrong)], kept[str(table)]) == ("settings", "withdrawn")
            assert converted(tmp_path, tmp_path / wrong) == made
    async with start(**right) as running:
        await running.holder.runner.retention.sweep()
        assert [one["path"] for one in (await running.get("/v1/datasets"))["items"] if one["name"] == "ehr"] == [
            str(table)
        ]
        assert str(table) not in [
            one["path"] for one in (await running.get("/v1/datasets"))["items"] if one["name"] != "ehr"
        ]
        assert converted(tmp_path, tmp_path / "none") == made
    async with start(datasets={"ehr": tmp_path / "misspelt.csv"}, approve="manual") as running:
        running.clock.now += DAY_S
        await running.holder.runner.retention.sweep()
        assert [one["name"] for one in (await running.get("/v1/datasets"))["items"]] == ["ehr"]
        assert converted(tmp_path, tmp_path / "none") == []


async def test_a_start_that_never_got_its_keys_names_a_dataset_again_too(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its day ran on from the start before that one, so that the next that misses it forgot it at once."""
    units = {"units": {"x": ["mg"]}}

    async def away(_: LocalEvidence, label: str) -> Secret:
        raise Unavailable("the enclave is away")

    async with start(approve="manual") as running:
        assert (await running.client.put("/v1/datasets/ehr/declaration", json=units)).status_code == 200
    async with start(datasets={}, approve="manual"):
        pass
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalEvidence, "derived_key", away)
        async with start(approve="manual", unlock=False) as running:
            running.clock.now += 3 * DAY_S
            assert (await running.get("/v1/datasets/ehr"))["source"] == "settings"
    async with start(datasets={}, approve="manual") as running:
        await running.holder.runner.retention.sweep()
        [shown] = (await running.get("/v1/datasets"))["items"]
        assert (shown["source"], shown["options"]) == ("withdrawn", units)


async def test_whoever_writes_to_the_table_makes_no_added_dataset_of_a_withdrawn_one(
    start: Start, tmp_path: Path
) -> None:
    """A policy that names it approved new sessions with it."""
    async with start() as running:
        await running.approved_with_channel()
    tamper(tmp_path, "UPDATE holder_datasets SET source = 'api' WHERE name = 'ehr'")
    async with start(datasets={"others": tmp_path / "ehr.npz"}) as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key(), name="study-2"))
        running.orchestrator.items[-1]["session"] = LATER
        await running.until(lambda: running.holder.ledger.knows(LATER))
        assert (await waiting_for(running, LATER, "dataset-unproven"))["state"] == "waiting"


async def test_what_an_earlier_release_wrote_of_the_settings_is_believed_once(start: Start, tmp_path: Path) -> None:
    """It made one kind of MAC only."""
    async with start(approve="manual") as running:
        await asked(running)
        macs = running.holder.catalogue._macs
        assert macs is not None
        row = {"name": "ehr", "path": str(tmp_path / "ehr.npz"), "options": "{}", "source": "api"}
        tamper(tmp_path, "UPDATE holder_datasets SET mac = ? WHERE name = 'ehr'", macs.of(row))
    about = {"session": SESSION}
    for code in ("dataset-withdrawn", "dataset-withdrawn"):
        async with start(datasets={}, approve="manual") as running:
            assert (await running.client.post("/v1/datasets/ehr/inspect", json=about)).json()["code"] == code
    tamper(tmp_path, "UPDATE holder_datasets SET source = 'api' WHERE name = 'ehr'")
    async with start(datasets={}, approve="manual") as running:
        answer = await running.client.post("/v1/datasets/ehr/inspect", json=about)
        assert answer.json()["code"] == "dataset-unproven"
