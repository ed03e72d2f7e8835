"""What an approval says of a dataset: declared by its operator, measured where it allows, and said anew when it was wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_holder.datasets import DatasetOptions, open_dataset
from data_holder.profile import profile_of
from shared.claims.archive import open_archive
from shared.claims.profile import DatasetProfile, class_tag
from shared.claims.program import ProgramManifest
from shared.claims.records import RecordField, RecordSchema
from shared.errors import InvalidData
from tests.data_holder.conftest import POLICY, Running, Start
from tests.data_holder.holder_world import ARCHIVE, FEATURES, SESSION, write_dataset
from tests.data_holder.test_holder_approvals import asked

DIGEST = "ab" * 32
MANY = 400
FIELDS = (RecordField(name="x", dtype="float32", shape=(2,)), RecordField(name="y", dtype="int64", min=0, max=9))


def program(tokenizer: str) -> ProgramManifest:
    return open_archive(ARCHIVE).manifest.model_copy(update={"tokenizer": tokenizer})


def profiled(
    folder: Path, measure: bool = True, records: int = MANY, tokenizer: str = "none", **declared: Any
) -> DatasetProfile:
    x = np.full((records, 2), 5.0, "<f4") * np.array([1.0, 1000.0], "<f4")
    np.savez(folder / "d.npz", x=x, y=np.arange(records, dtype="<i8") % 3)
    options = DatasetOptions(**declared)
    with open_dataset(folder / "d.npz", RecordSchema(fields=FIELDS), options=options) as dataset:
        return profile_of(
            dataset, dataset.statistics(), program(tokenizer), session=SESSION, manifest=DIGEST, measure=measure
        )


def test_units_classes_and_sizes_are_stated_and_names_are_not(tmp_path: Path) -> None:
    said = profiled(tmp_path, units={"x": ["mg", "g"]}, classes={"y": ["cat", "dog", "cow", "hen"]})
    x, y = said.fields
    assert x.units == ("mg", "g")
    assert [scale and (scale.size, scale.spread) for scale in x.scales] == [(0, 0), (3, 0)]
    assert y.classes == tuple(class_tag(SESSION, DIGEST, "y", name) for name in ("cat", "dog", "cow", "hen"))
    assert y.present == (True, True, True, False)
    assert "cat" not in said.model_dump_json()


def test_an_operator_that_forbids_it_states_what_it_declared_and_nothing_more(tmp_path: Path) -> None:
    said = profiled(tmp_path, measure=False, units={"x": ["mg"]}, classes={"y": ["cat", "dog", "cow"]})
    assert said.measured is False
    assert said.fields[0].units == ("mg",)
    assert len(said.fields[1].classes) == 3


def test_of_few_records_nothing_is_measured(tmp_path: Path) -> None:
    assert profiled(tmp_path, records=99).measured is False
    assert profiled(tmp_path, records=100).measured is True


def test_of_tokens_nothing_is_measured(tmp_path: Path) -> None:
    assert profiled(tmp_path, tokenizer="external").measured is False
    assert profiled(tmp_path, tokenizer="bytes").measured is False


def test_equal_texts_are_equal_however_they_are_typed(tmp_path: Path) -> None:
    micro, mu = profiled(tmp_path, units={"x": [" \u00b5g"]}), profiled(tmp_path, units={"x": ["\u03bcg "]})
    assert micro == mu


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"units": {"z": ["mg"]}}, "no such field; they have x, y"),
        ({"units": {"x": ["mg", "g", "kg"]}}, "3 units for 2 columns"),
        ({"classes": {"x": ["cat"]}}, "no whole numbers"),
        ({"classes": {"y": ["cat", "dog"]}}, "values beyond its 2 declared classes"),
        ({"classes": {"y": ["cat", "dog", "cat"]}}, "a class is named twice"),
    ],
)
def test_what_cannot_be_declared_is_refused_with_field_and_reason(
    tmp_path: Path, declared: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidData, match=says) as refused:
        profiled(tmp_path, **declared)
    assert refused.value.code == "bad-declaration"


def test_declaring_leaves_the_dataset_what_it_is(tmp_path: Path) -> None:
    """Else its tree would be hashed again, minutes for a large one, because of a word."""
    profiled(tmp_path)
    schema = RecordSchema(fields=FIELDS)
    said = DatasetOptions(units={"x": ["mg"]}, classes={"y": ["cat"]})
    with (
        open_dataset(tmp_path / "d.npz", schema) as one,
        open_dataset(tmp_path / "d.npz", schema, options=said) as other,
    ):
        assert one.identity == other.identity


async def declare(running: Running, **said: Any) -> Any:
    answer = await running.client.put("/v1/datasets/ehr/declaration", json=said)
    assert answer.status_code == 200
    return answer.json()


async def test_a_declaration_is_stated_corrected_and_stated_anew(start: Start) -> None:
    async with start(approve="manual") as running:
        shown = await asked(running)
        assert (shown["profile"], shown["estimate"]["bytes"]) == (None, 5 * 5 * 4 * FEATURES * 4)
        assert any(why.startswith("seconds: the orchestrator did not say") for why in shown["estimate"]["unknown"])
        assert (await declare(running, units={"x": ["mg"]}))["options"] == {"units": {"x": ["mg"]}}
        seen = (await running.client.post("/v1/datasets/ehr/inspect", json={"session": SESSION})).json()
        path, body = f"/v1/requests/{SESSION}/approve", {"manifest": shown["manifest"], "dataset": "ehr"}
        early = await running.client.post(path, json={**body, "anew": True})
        assert early.json()["code"] == "not-approved"
        done = (await running.client.post(path, json=body)).json()
        assert done["profile"] == seen["profile"]
        assert done["profile"]["fields"][0]["units"] == ["mg"]
        assert done["estimate"]["passes"] == 100 / 50
        await declare(running, units={"x": ["g"]})
        anew = {"manifest": shown["manifest"], "anew": True}
        for _ in range(2):  # the second one says nothing new, and is delivered again
            assert (await running.client.post(path, json=anew)).json()["profile"]["fields"][0]["units"] == ["g"]
        said = running.orchestrator.approvals
        assert [one.profile and one.profile.fields[0].units for one in said] == [("mg",), ("g",), ("g",)]
        assert len({one.dataset_root for one in said}) == 1
        assert (await running.client.post(path, json=body)).json()["code"] == "already-decided"


async def test_other_records_are_never_approved_anew(start: Start, tmp_path: Path) -> None:
    async with start(approve="manual") as running:
        shown = await asked(running)
        path, body = f"/v1/requests/{SESSION}/approve", {"manifest": shown["manifest"], "dataset": "ehr"}
        assert (await running.client.post(path, json=body)).status_code == 200
        write_dataset(tmp_path / "ehr.npz", records=60)
        refused = await running.client.post(path, json={**body, "anew": True})
        assert (refused.status_code, refused.json()["code"]) == (409, "dataset-changed")


@pytest.mark.parametrize(
    ("policy", "wanted", "stated"),
    [("", True, True), ("", False, False), ("[profile]\nstatistics = false\n", True, False)],
)
async def test_policy_and_operator_may_each_forbid_sizes(
    start: Start, tmp_path: Path, policy: str, wanted: bool, stated: bool
) -> None:
    (tmp_path / "mine.toml").write_text(POLICY + policy)
    write_dataset(tmp_path / "ehr.npz", records=200)
    async with start(approve="manual", policy=tmp_path / "mine.toml") as running:
        shown = await asked(running)
        body = {"manifest": shown["manifest"], "dataset": "ehr", "statistics": wanted}
        await running.client.post(f"/v1/requests/{SESSION}/approve", json=body)
        [said] = running.orchestrator.approvals
        assert said.profile is not None
        assert said.profile.measured is stated


async def test_what_was_declared_survives_a_restart(start: Start) -> None:
    async with start(approve="manual") as running:
        await declare(running, units={"x": ["mg"]}, classes={})
    async with start(approve="manual") as again:
        known = await again.get("/v1/datasets/ehr")
        assert known["options"] == {"units": {"x": ["mg"]}}
        assert (await again.client.put("/v1/datasets/none/declaration", json={})).status_code == 404
