"""The demos' parts without services: who gets which records, what is refused, how a result is judged and shown."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from data_holder.datasets import inspect_dataset
from gpu_agent.workload.builder import build
from gput.__main__ import main
from gput.local.demo import Demo
from gput.local.demos import compare
from gput.local.demos.catalogue import DEMOS, STATE, keep, kept, plan_of
from gput.local.demos.digits import CLASSES, Digits
from gput.local.demos.hospitals import LABEL, MEASURES, Hospitals
from gput.local.demos.plan import HELD_OUT
from gput.local.demos.records import POOLED, TOGETHER, Records
from gput.local.demos.texts import Texts
from gput.local.job import policy_text
from shared.claims.archive import Archive, open_archive
from shared.errors import BadRequest, Unavailable
from shared.names import TravelMode

RECORDS = [Hospitals(), Digits()]
PERFECT, LOST, COIN = 1.0, 0.0, 0.5


@pytest.mark.parametrize("plan", RECORDS, ids=lambda plan: str(plan.name))
def test_every_record_is_dealt_out_once_and_the_same_way_again(plan: Records) -> None:
    table = plan.table()
    count = len(next(iter(table.values())))
    shares = plan.shares(table)
    assert set(shares) == {*plan.holders, HELD_OUT}
    assert sorted(np.concatenate(list(shares.values()))) == list(range(count))
    assert all(len(rows) >= plan.batch for rows in shares.values())
    again = plan.shares(plan.table())
    assert all(np.array_equal(rows, again[name]) for name, rows in shares.items())


def test_hospitals_are_not_alike() -> None:
    plan = Hospitals()
    table = plan.table()
    ill = {name: float(table[LABEL][rows].mean()) for name, rows in plan.shares(table).items()}
    assert ill["screening"] < 0.06 < 0.4 < ill["county"] < 0.5 < 0.65 < ill["oncology"]
    assert ill[HELD_OUT] == pytest.approx(float(table[LABEL].mean()), abs=0.01)
    sizes = {}
    for name, rows in plan.shares(table).items():
        sizes[name] = float(table["radius"][rows[table[LABEL][rows] == 1], 0].mean())
    assert sizes["screening"] < sizes["county"] < sizes["oncology"]


def test_each_holder_has_mostly_two_digits() -> None:
    plan = Digits()
    label = plan.table()["label"]
    shares = plan.shares(plan.table())
    for place, name in enumerate(plan.holders):
        counts = np.bincount(label[shares[name]], minlength=CLASSES)
        assert counts[[2 * place, 2 * place + 1]].sum() > 0.88 * counts.sum()
        assert counts.min() > 0
    held = np.bincount(label[shares[HELD_OUT]], minlength=CLASSES)
    assert held.max() - held.min() <= 2


@pytest.fixture(scope="module", params=RECORDS, ids=lambda plan: str(plan.name))
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Records, Path]:
    """A demo's plan, and a folder with its program and its data, as a run makes them."""
    plan: Records = request.param
    folder = tmp_path_factory.mktemp(plan.name)
    archive, weights = build(plan.target)
    assert weights is None  # the GPU draws them: nothing besides the program is uploaded
    (folder / plan.program).write_bytes(archive)
    plan.split(folder / "data")
    return plan, folder


def program(demo: tuple[Records, Path]) -> Archive:
    plan, folder = demo
    return open_archive((folder / plan.program).read_bytes())


def test_all_data_fit_the_program(demo: tuple[Records, Path]) -> None:
    plan, folder = demo
    for name, path in plan.places(folder / "data").items():
        report = inspect_dataset(path, program(demo).manifest)
        assert report.fits, (name, report.findings)


def test_the_program_holds_no_state(demo: tuple[Records, Path]) -> None:
    assert not program(demo).manifest.state


def test_another_unit_is_found_by_field_and_row(tmp_path: Path) -> None:
    """A hospital that states areas in other units than its program declares."""
    table = Hospitals().table()
    path = tmp_path / "records.npz"
    np.savez(path, **{**table, "area": table["area"] * 100})
    report = inspect_dataset(path, open_archive(build(Hospitals.target)[0]).manifest)
    assert not report.fits
    assert {finding.field for finding in report.findings} == {"area"}
    assert all(finding.row is not None for finding in report.findings)


def test_standardised_figures_are_of_the_order_of_one() -> None:
    """Declared constants that fitted the records badly would show in training only."""
    table = Hospitals().table()
    for measure in MEASURES:
        figures = (table[measure.name] - np.array(measure.centre)) / np.array(measure.spread)
        assert abs(figures.mean(axis=0)).max() < 0.6, measure.name
        assert 0.4 < figures.std(axis=0).min() <= figures.std(axis=0).max() < 1.6, measure.name
        assert (table[measure.name] <= measure.high / 1.4).all(), (
            measure.name
        )  # a range that fits tightly tells of the records


def judged(demo: tuple[Records, Path], tmp_path: Path) -> dict[str, Any]:
    """What the judge says of the untrained model."""
    from safetensors.torch import save_file

    from gpu_agent.workload.tensors import initial_tensors

    kind, folder = demo
    plan = type(kind)(rounds=1, steps=2)
    for name in (plan.program, "data"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / STATE).write_bytes(keep("s_1", plan))
    save_file(initial_tensors(program(demo).manifest, None), tmp_path / "model.safetensors")
    return compare.main(tmp_path)


def test_the_judge_compares_alone_together_and_pooled(demo: tuple[Records, Path], tmp_path: Path) -> None:
    plan, _ = demo
    found = judged(demo, tmp_path)
    rows = {row["trained on"]: row for row in found["rows"]}
    assert list(rows) == [*(f"{name} alone" for name in plan.holders), TOGETHER, POOLED]
    assert {row["steps"] for row in rows.values()} == {2 * len(plan.holders)}
    assert rows[POOLED]["records"] == sum(rows[f"{name} alone"]["records"] for name in plan.holders)
    assert rows[POOLED]["loss"] < rows[TOGETHER]["loss"] == found["loss"]  # the one was trained, the other here was not
    shown = plan.result(found)
    assert max(cell_len(line) for line in shown.splitlines()) <= 80
    assert all(name in shown for name in rows)
    json.dumps(found)


def test_scores_are_those_of_the_labels() -> None:
    held = {"x": torch.tensor([-2.0, -1.0, 1.0, 2.0]), "label": torch.tensor([0, 0, 1, 1])}

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return torch.zeros(4)

    class Sign(torch.nn.Module):
        def __init__(self, sign: float) -> None:
            super().__init__()
            self.sign = sign

        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.sign * batch["x"]

    right, wrong, none = (compare.scores(Sign(sign), loss, held) for sign in (1.0, -1.0, 0.0))
    assert (right["AUC"], right["accuracy"], right["found"]) == (PERFECT, PERFECT, PERFECT)
    assert (wrong["AUC"], wrong["accuracy"], wrong["found"]) == (LOST, LOST, LOST)
    assert (none["AUC"], none["accuracy"], none["found"]) == (COIN, 0.5, 0.0)


def test_scores_of_several_classes_are_for_each() -> None:
    held = {"x": torch.eye(3)[[0, 1, 1, 2]], "label": torch.tensor([0, 1, 2, 2])}

    class Same(torch.nn.Module):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return batch["x"]

    found = compare.scores(Same(), lambda model, batch: torch.ones(4), held)
    assert found == {"accuracy": 0.75, "loss": 1.0, "per class": [1.0, 1.0, 0.5]}


def test_a_pass_takes_every_record_once() -> None:
    draws = compare.batches(10, 5, np.random.default_rng(0))
    first, second = torch.cat([next(draws), next(draws)]), torch.cat([next(draws), next(draws)])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()


def test_without_scikit_learn_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("gput.local.demos.records.importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable):
        Digits().ready()
    assert main(["demo", "hospitals", "--dir", str(tmp_path / "run")]) == Unavailable.exit_code
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install --editable '.[demos]'" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["banks"], "there is no demo 'banks'"),
        (["digits", "--layers", "2"], "has no --layers"),
        (["digits", "--attack", "stale-key"], "attacks are played on the demo of texts"),
    ],
)
def test_what_there_is_not_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["demo", *words, "--dir", str(tmp_path / "run")]) == BadRequest.exit_code
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_how_to_continue_says_what_was_asked_for_until_it_is_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once it is, the plan is kept in the folder, and the options with it."""
    seen: list[str] = []

    async def stopped(demo: Demo, doing: Coroutine[Any, Any, int]) -> int:
        doing.close()
        seen.append(demo.continuing())
        (demo.folder / STATE).write_bytes(keep("s_1", demo.plan))
        seen.append(demo.continuing())
        return 130

    monkeypatch.setattr("gput.commands.demo._until_stopped", stopped)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "hospitals", "--rounds", "2", "--mode", "direct", "--dir", "run"]) == 130
    assert seen == ["gput demo hospitals --rounds 2 --mode direct --dir run", "gput demo --resume --dir run"]


@pytest.mark.parametrize("name", DEMOS)
def test_a_run_is_resumed_by_the_plan_that_it_began_with(name: str, tmp_path: Path) -> None:
    plan = plan_of(name, {"rounds": 3, "mode": TravelMode.DIRECT})
    assert kept(tmp_path) is None
    (tmp_path / STATE).write_bytes(keep("s_1", plan))
    assert kept(tmp_path) == plan
    assert f'dataset = "{plan.dataset}"' in policy_text(plan, "")


def test_a_run_of_before_there_were_several_demos_is_one_of_texts(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text(json.dumps({"session": "s_1", "plan": {"rounds": 2, "layers": 1}}))
    assert kept(tmp_path) == Texts(rounds=2, layers=1)


def test_a_run_of_another_demo_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STATE).write_bytes(keep("s_1", plan_of("hospitals", {})))
    assert main(["demo", "digits", "--resume", "--dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip()
    assert told.endswith(
        "holds the demo 'hospitals'. Leave 'digits' out, or name the folder of such a run by --dir. [demo-option]"
    )
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"plan": {"nothing": 1}}', '{"demo": "none", "plan": {}}', '{"plan": 1}', '{"demo": [], "plan": {}}']
)  # fmt: skip
def test_a_folder_that_says_nothing_of_its_run_is_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / STATE).write_text(content)
    assert main(["demo", "--resume", "--dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip()
    assert len(told.splitlines()) == 1
    assert told.endswith("does not say which demo it is of. Begin in another folder: `gput demo`. [no-demo]")
