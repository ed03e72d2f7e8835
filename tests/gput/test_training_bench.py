"""`gput bench training`: both sides train the same model on the same batches, and what is found are figures of the bench."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gput.bench.figures import figures
from gput.local import training_bench
from gput.local.training_bench import Sides, measure

TINY = {"context": 16, "layers": 1, "heads": 2, "width": 16}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def test_both_sides_train_the_same() -> None:
    found = measure(20, 3, TINY)
    assert found["loss_apart"] < 1e-4
    named = {f"short.{name}": value for name, value in found.items()}
    assert set(figures("training", [named])) == set(named)
    assert found["batch"] == 3
    assert min(found["ours_s"], found["plain_s"], found["ratio"]) > 0


def test_another_computation_would_show_in_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_bench, "CLIP", 1e-3)  # of plain PyTorch alone: the trainer was told before
    honest = training_bench._trainer

    def told_otherwise(*how: object) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(training_bench, "CLIP", 1.0)
            patch.setattr(training_bench, "LEARNING_RATE", 0.02)
            return honest(*how)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(training_bench, "_trainer", told_otherwise)
    assert measure(20, 3, TINY)["loss_apart"] > 1e-3


def test_who_begins_changes_and_both_take_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, int]] = []

    class Noting:
        def ours(self, first: int) -> list[float]:
            taken.append(("ours", first))
            return [1.0, 2.5]

        def theirs(self, first: int) -> list[float]:
            taken.append(("theirs", first))
            return [1.0, 2.0]

    monkeypatch.setattr(training_bench, "_sides", lambda *how: Noting())
    assert measure(20, 2)["loss_apart"] == 0.5
    assert taken == [
        ("theirs", 0), ("ours", 0), ("ours", 5), ("theirs", 5), ("theirs", 10), ("ours", 10), ("ours", 15), ("theirs", 15),
    ]  # fmt: skip
    assert training_bench.TURN == 5


@pytest.mark.parametrize(("step_s", "found"), [
    (0.006, {"short": 2, "long": 32}), (0.2, {"short": 1, "long": 1}), (1e-6, {"short": 256, "long": 256}),
])  # fmt: skip
def test_batches_are_looked_for_by_the_step_of_plain_pytorch(
    step_s: float, found: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_bench, "plain_step_s", lambda batch: batch * step_s)
    assert training_bench.found_batches() == found
    assert Sides(None, *training_bench._plain(1, TINY, {})).theirs(0)  # it needs no measured graph
