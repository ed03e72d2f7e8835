"""The comparison's own parts: records, model, outcomes, tables. The frameworks themselves are run by `make bench-peers` only."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np
import pytest

from gput.bench.figures import BENCHES
from tests.peers import measure, table
from tests.peers.__main__ import entries, installed
from tests.peers.brood import Brood
from tests.peers.contestant import Contestant, State, lines, plain
from tests.peers.flare import Flare
from tests.peers.task import Task, records, text, words, write

ROOT = Path(__file__).parents[2]
SMALL = Task(rounds=2, steps=2, batch=4, layers=1, heads=2, width=8, context=16, held_out=4)


# ------------------------------------------------------------------- the task


def test_holders_have_words_of_their_own_and_held_out_text_is_other_text() -> None:
    own = [set(words(holder, 1)) for holder in range(3)]
    assert not own[0] & own[1]
    assert not own[1] & own[2]
    assert text(0, 1, "train", 500) != text(0, 1, "held out", 500)
    assert set(text(0, 1, "train", 500).decode().split()[:-1:2]) <= own[0]


def test_records_come_from_the_seed() -> None:
    made = records(SMALL, 1, "train", 20)
    assert made == records(SMALL, 1, "train", 20)
    assert {len(one) for one in made} == {SMALL.context + 1}
    assert made != records(Task(context=16, seed=2), 1, "train", 20)


def test_shorter_visits_are_the_same_steps() -> None:
    short = Task().in_visits_of(5)
    assert (short.rounds, short.steps, short.visits) == (40, 5, 120)
    assert (Task().visits, Task().half) == (15, 8)
    with pytest.raises(ValueError, match="not visits of 7"):
        Task().in_visits_of(7)


# ------------------------------------------------- what runs in a peer's place


@pytest.fixture
def common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Their code in this environment, over a small task."""
    import torch

    from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config

    write(SMALL, tmp_path)
    torch.manual_seed(3)
    config = GPT2Config(layers=SMALL.layers, heads=SMALL.heads, width=SMALL.width, context=SMALL.context, vocab=256)
    torch.save(GPT2(config).state_dict(), tmp_path / "start.pt")
    monkeypatch.setenv("PEERS_TASK", str(tmp_path))
    monkeypatch.setenv("PEERS_PROGRESS", str(tmp_path / "progress"))
    spec = importlib.util.spec_from_file_location("their_common", ROOT / "tests/peers/theirs/common.py")
    assert spec is not None
    assert spec.loader is not None
    module, threads = importlib.util.module_from_spec(spec), torch.get_num_threads()
    spec.loader.exec_module(module)
    torch.set_num_threads(threads)  # theirs is for a process of its own
    return module


def test_their_model_is_ours(common: ModuleType, tmp_path: Path) -> None:
    import torch

    from tests.peers.tensors import losses

    with np.load(tmp_path / "held-out-1.npz") as file:
        tokens = torch.from_numpy(file["tokens"].astype(np.int64))
    model = common.fresh()
    model.eval()
    with torch.no_grad():
        theirs = float(common.loss_of(model, tokens))
    common.save(model.state_dict(), str(tmp_path / "saved.pt"))
    torch.save({"model": model.state_dict(), "notes": {}}, tmp_path / "nested.pt")
    found = losses(tmp_path, tmp_path / "saved.pt")
    assert theirs == pytest.approx(found[1], rel=1e-6)
    assert len(found) == SMALL.holders
    assert losses(tmp_path, tmp_path / "nested.pt") == found


def test_a_round_trains_on_its_own_records_and_says_so(common: ModuleType, tmp_path: Path) -> None:
    def trained(turn: int) -> bytes:
        model = common.fresh()
        common.train(model, 0, turn)
        return b"".join(one.detach().numpy().tobytes() for one in model.parameters())

    before = trained(0), trained(1)
    assert before[0] != before[1]
    with np.load(tmp_path / "holder-0.npz") as file:
        tokens = file["tokens"].copy()
    tokens[SMALL.steps * SMALL.batch :] = 65  # the second round's
    np.savez(tmp_path / "holder-0.npz", tokens=tokens)
    after = trained(0), trained(1)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert (tmp_path / "progress").read_text() == "0 0\n0 1\n" * 2
    assert lines(tmp_path / "progress") == 4


# ------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(("status", "stored", "state"), [
    (None, False, State.RUNNING), ("RUNNING", False, State.RUNNING), ("FINISHED:COMPLETED", False, State.RUNNING),
    ("FINISHED:COMPLETED", True, State.DONE), ("FINISHED:EXECUTION_EXCEPTION", True, State.FAILED),
])  # fmt: skip
def test_flares_own_file_tells_a_jobs_state(status: str | None, stored: bool, state: State, tmp_path: Path) -> None:
    job = Flare(Brood(tmp_path), SMALL, tmp_path, "fedavg")
    job._job = "j"
    kept = tmp_path / "poc" / "jobs-storage" / "j"
    kept.mkdir(parents=True)
    if status is not None:
        (kept / "meta").write_text(json.dumps({"status": status}))
    if stored:
        (kept / "workspace").touch()
    assert job.state() is state


class Scripted:
    """Goes through states, one at each look; `late` is what only a slow look finds."""

    def __init__(self, states: list[State], late: State) -> None:
        self.states, self.late = states, late

    def state(self) -> State:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def settled(self) -> State:
        return self.late


@pytest.mark.parametrize(("states", "late", "found"), [
    ([State.RUNNING, State.RUNNING, State.DONE], State.DONE, State.DONE),
    ([State.RUNNING], State.FAILED, State.FAILED),
    ([State.RUNNING], State.RUNNING, State.RUNNING),
])  # fmt: skip
def test_what_becomes_of_a_killed_job(
    states: list[State], late: State, found: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "PACE_S", 0.001)
    monkeypatch.setattr(measure, "SETTLE_S", 0.05)
    assert measure._settle(cast(Contestant, Scripted(states, late)), 0.2) is found


FOUND: dict[str, float] = {
    "ours.wall_s": 10.0, "ours.loss": 1.5, "ours.kill_finished": 1.0, "ours.kill_s": 12.4, "ours.kill_again": 1.0,
    "ours.kill_loss": 1.5, "flower.wall_s": 40.0, "flower.loss": 1.25, "flower.kill_finished": 0.0,
    "flare.wall_s": 20.0, "flare.loss": 1.75,
}  # fmt: skip


def test_the_table_says_what_was_found_and_what_was_not() -> None:
    ours, flower, flare = table.rows(["ours", "flower", "flare"], FOUND, {"flower": "finished failed"})
    assert (ours["wall_s"], ours["moved_mb"]) == (10.0, None)
    assert ours["after_kill"] == "finished in 12 s, 1 visits again, the same loss"
    assert flower["after_kill"] == "not finished: finished failed"
    assert flare["after_kill"] == "not tried"
    assert table.after("ours", FOUND | {"ours.kill_loss": 1.6}, {}).endswith("loss 1.6")
    assert set(table.COLUMNS) == set(ours)


def test_who_is_ahead_is_told_both_ways() -> None:
    assert table.standing("ours", ["flower", "flare"], FOUND) == [
        "wall_s: ours is ahead, 0.50 times the best of the others (flare)",
        "loss: ours is behind, 1.20 times the best of the others (flower)",
    ]
    assert table.standing("ours", [], FOUND) == []


def test_every_figure_is_defined() -> None:
    bench = BENCHES["peers"]
    names = (
        *table.LOWER,
        "prepare_s",
        "records_mb",
        "checkpoints_mb",
        "kill_finished",
        "kill_s",
        "kill_again",
        "kill_loss",
    )
    for name in names:
        definition = bench.definition(f"ours-short.{name}")
        assert definition is not None
        assert definition.pattern == f"*.{name}"
    assert bench.command == "make bench-peers"


def test_statuses_are_words_of_a_result() -> None:
    assert plain("finished:failed") == "finished failed"
    assert plain("\x1b[2J::") == "2j"
    assert plain("") == "unknown"
    assert measure.rounded({"loss": 1.23456, "worst_loss": 1.23456, "wall_s": 1.23456}) == {
        "loss": 1.2346, "worst_loss": 1.2346, "wall_s": 1.235,
    }  # fmt: skip


def test_versions_are_those_that_are_installed(tmp_path: Path) -> None:
    assert installed(tmp_path, "flwr") is None
    (tmp_path / "lib" / "python3.11" / "site-packages" / "flwr-1.41.0.dist-info").mkdir(parents=True)
    assert installed(tmp_path, "flwr") == "1.41.0"


def test_pins_and_entries_agree_with_the_makefile() -> None:
    pinned = (ROOT / "Makefile").read_text()
    for package in ("flwr", "nvflare"):
        assert f"{package}==" in pinned
    everybody = {one.name: one for one in entries(Path(os.devnull), 5)}
    assert list(everybody) == ["ours", "ours-tour", "ours-short", "flower", "flare", "flare-cyclic"]
    assert [one.task(Task()).steps for one in everybody.values()] == [40, 40, 5, 40, 40, 40]
