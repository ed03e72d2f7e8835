"""Sessions approved by a release that read some tables otherwise: served where the records are the same, else refused by that name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_holder import approvals
from data_holder.datasets import CONVERSION, cache, cells, tables
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import FEATURES, SESSION
from tests.data_holder.test_holder_approvals import asked
from tests.data_holder.test_holder_visits import visit

Read = Callable[[pytest.MonkeyPatch], None]
HEAD = ",".join(f"x{number}" for number in range(FEATURES))


def of_before(patch: pytest.MonkeyPatch) -> None:
    """As the release did: it insisted on no option, and any number of Python's was one of everybody's."""
    for module in (approvals, cache, tables):
        patch.setattr(module, "CONVERSION", 1)
    patch.setattr(tables, "_insist_on_fields", lambda *_: None)
    patch.setattr(cells, "_plain", lambda text: True)


def other_columns(patch: pytest.MonkeyPatch) -> None:
    """It could take another column for a field, as where a label was named beside one of the field's own name."""
    of_before(patch)
    plan = tables._plan
    patch.setattr(tables, "_plan", lambda *given: {name: found[::-1] for name, found in plan(*given).items()})


def write_table(folder: Path, *, cell: str | None = None) -> Path:
    values = np.arange(50 * FEATURES).reshape(50, FEATURES)
    lines = [",".join(map(str, row)) for row in values]
    if cell is not None:
        lines[7] = ",".join([cell] * FEATURES)
    (folder / "t.csv").write_text("\n".join([HEAD, *lines]))
    return folder / "t.csv"


async def approved_before(start: Start, path: Path, options: dict[str, Any], read: Read) -> None:
    """A session approved with the dataset by the release before, as `read` has it, and that release stopped."""
    with pytest.MonkeyPatch.context() as patch:
        read(patch)
        async with start(approve="manual") as running:
            shown = await asked(running)
            body: dict[str, Any] = {"name": "added", "path": str(path), "options": options}
            assert (await running.client.post("/v1/datasets", json=body)).status_code == 201
            said = {"manifest": shown["manifest"], "dataset": "added"}
            assert (await running.client.post(f"/v1/requests/{SESSION}/approve", json=said)).status_code == 200
            await running.until(lambda: running.orchestrator.approvals)
            assert running.holder.ledger.state(SESSION).conversion == approvals.CONVERSION
            running.orchestrator.items.clear()


async def served(running: Running) -> None:
    """A visit of the session, to its report or its refusal."""
    running.orchestrator.post("channel_wanted")
    await running.until(running.open_channel)
    await visit(running)
    await running.until(lambda: running.orchestrator.reports or running.orchestrator.refusals)


@pytest.mark.parametrize("options", [{"label": "outcome"}, {"columns": {"another program's": ["x0"]}}, {}], ids=str)
async def test_an_option_that_no_field_takes_stops_no_session_that_was_approved_with_it(
    start: Start, tmp_path: Path, options: dict[str, Any]
) -> None:
    """It could be corrected nowhere: a dataset in use is neither removed nor added again."""
    await approved_before(start, write_table(tmp_path), options, of_before)
    async with start(approve="manual") as running:
        await served(running)
        assert not running.orchestrator.refusals
        assert running.gpu.plain[:4] == np.float32(0).tobytes()
        about = await running.client.post("/v1/datasets/added/inspect", json={"session": SESSION})
        assert about.json()["fits"] is not bool(options), "a new approval is told of it"


@pytest.mark.parametrize(("cell", "read"), [("1_0", of_before), (None, other_columns)], ids=["1_0", "other columns"])
async def test_a_table_that_was_read_otherwise_is_refused_by_that_name(
    start: Start, tmp_path: Path, cell: str | None, read: Read
) -> None:
    """That it changed would send people to look for a change, and the kept tree would have the GPU refuse it first."""
    await approved_before(start, write_table(tmp_path, cell=cell), {}, read)
    async with start(approve="manual") as running:
        await served(running)
        [refusal] = running.orchestrator.refusals
        assert refusal["code"] == "approved-by-older-rule"
        assert "read some tables (CSV) otherwise" in refusal["detail"]
        assert "added" not in refusal["detail"], "how it is called here is nobody else's"
        assert running.gpu.calls == 0


@pytest.mark.parametrize(("cell", "read"), [("1_0", of_before), (None, other_columns)], ids=["1_0", "other columns"])
async def test_an_approval_anew_is_refused_by_that_name(
    start: Start, tmp_path: Path, cell: str | None, read: Read
) -> None:
    """Its operator was told to put the approved data back, which lie there as they were."""
    await approved_before(start, write_table(tmp_path, cell=cell), {}, read)
    np.save(tmp_path / "more.npy", np.zeros((50, FEATURES), "<f4"))
    async with start(approve="manual") as running:
        said = {"manifest": (await running.get(f"/v1/requests/{SESSION}"))["manifest"], "anew": True}
        refused = await running.client.post(f"/v1/requests/{SESSION}/approve", json=said)
        assert (refused.status_code, refused.json()["code"]) == (409, "approved-by-older-rule")
        added = {"name": "more", "path": str(tmp_path / "more.npy")}
        assert (await running.client.post("/v1/datasets", json=added)).status_code == 201
        for other in ("more", "ehr"):  # which nobody approved
            refused = await running.client.post(f"/v1/requests/{SESSION}/approve", json=said | {"dataset": other})
            assert (refused.status_code, refused.json()["code"]) == (409, "dataset-changed")


async def test_what_is_no_table_and_does_not_fit_any_more_is_told_as_that(start: Start, tmp_path: Path) -> None:
    """No release read it otherwise, and its operator would have looked for one."""
    path = tmp_path / "more.npy"
    np.save(path, np.zeros((50, FEATURES), "<f4"))
    await approved_before(start, path, {}, of_before)
    np.save(path, np.ones((50, FEATURES + 1), "<f4"))
    async with start(approve="manual") as running:
        await served(running)
        assert [one["code"] for one in running.orchestrator.refusals] == ["data-wrong-shape"]
        said = {"manifest": (await running.get(f"/v1/requests/{SESSION}"))["manifest"], "anew": True}
        refused = await running.client.post(f"/v1/requests/{SESSION}/approve", json=said)
        assert (refused.status_code, refused.json()["code"]) == (422, "data-wrong-shape")


async def test_what_is_no_table_changed_whoever_approved_it(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "more.npy"
    np.save(path, np.zeros((50, FEATURES), "<f4"))
    await approved_before(start, path, {}, of_before)
    np.save(path, np.ones((50, FEATURES), "<f4"))
    async with start(approve="manual") as running:
        await served(running)
        assert [one["code"] for one in running.orchestrator.refusals] == ["dataset-changed"]


async def test_a_table_that_this_release_read_changed(start: Start, tmp_path: Path) -> None:
    path = write_table(tmp_path)
    await approved_before(start, path, {}, lambda patch: None)
    write_table(tmp_path, cell="8")
    async with start(approve="manual") as running:
        assert running.holder.ledger.state(SESSION).conversion == CONVERSION
        await served(running)
        assert [one["code"] for one in running.orchestrator.refusals] == ["dataset-changed"]
