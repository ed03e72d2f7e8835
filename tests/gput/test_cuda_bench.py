"""`gput bench cuda`: its two measurements run for real on the stand-in device; without a GPU the command says so in one line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

from gput.__main__ import main
from gput.bench.figures import figures
from gput.local import cuda_visits
from gput.local.cuda_bench import main as measure
from gput.local.cuda_bench import training, transfer
from gput.local.cuda_visits import Work, sessions

TINY = {"context": 16, "vocab": 300, "layers": 1, "heads": 2, "width": 16}
WITHOUT = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


@WITHOUT
def test_without_a_device_it_is_one_line_and_exit_code_6(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "cuda"]) == 6
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.strip().splitlines()) == 1
    assert "cuda:0" in told.err
    assert "[no-cuda-device]" in told.err


@WITHOUT
def test_without_a_device_nothing_is_measured() -> None:
    assert list(measure("cuda:0", 10, 1, 2, 1)) == ["absent"]


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:x", "cuda:0 "])
def test_a_name_that_is_no_cuda_device_is_refused(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "cuda", "--device", device]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_it_measures_are_figures_of_the_bench() -> None:
    threads = torch.get_num_threads()
    runs = [one | other for one, other in zip(transfer("cpu", 8, 2), training("cpu", 10, 2, TINY, 2), strict=True)]
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    assert set(figures("cuda", runs)) == set(runs[0]) == set(runs[1])
    for found in runs:
        assert found.pop("loss_apart") < 0.01
        assert all(value > 0 for value in found.values())


def test_visits_are_parted_by_whole_rounds() -> None:
    told = [{"round": number // 3, "holder": number % 3} for number in range(9)]
    assert [[one["holder"] for one in part] for part in cuda_visits._parts(told, 3)] == [[0, 1, 2]] * 3
    assert sum(map(len, cuda_visits._parts(told, 2))) == 9


@pytest.mark.slow
@pytest.mark.processes
def test_visits_of_sessions_are_figures_of_the_bench(tmp_path: Path) -> None:
    said: list[str] = []
    work = Work(10, 2, 8, short=2, long=2, steps_each=3)
    runs = asyncio.run(sessions(tmp_path, {}, TINY, work, 2, said.append))
    assert len(runs) == 2
    assert set(figures("cuda", runs)) == set(runs[0])
    for found in runs:
        assert found["gpt2.tokens_per_s"] < 3 * 2 * 16 * 1000 / found["gpt2.train.median_ms"], "whole visits"
        assert 0 < found["visit.control.median_ms"] <= found["visit.overhead.median_ms"]
    assert said.count("3 rounds of 3 holders …") == 2
    for run in runs:
        for kind in ("visit", "gpt2"):
            assert run[f"{kind}.mean_ms"] >= run[f"{kind}.train.median_ms"] / 2 > 0, "all of its steps, of two visits'"


def test_a_result_says_which_card_it_is_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    trained = [{"tokens_per_s": 3.0}, {"tokens_per_s": 4.0}]

    async def played(module: str, *words: str) -> str:
        asked.append(words)
        return json.dumps({"runs": trained} if words[1:] else {"card": "A card"})

    async def visits(folder: Path, agent: object, *_: object) -> list[dict[str, float]]:
        assert agent == {"compute": "cuda:1"}
        return [{"gpt2.tokens_per_s": 1.0}, {"gpt2.tokens_per_s": 2.0}]

    monkeypatch.setattr(cuda_visits, "run_module", played)
    monkeypatch.setattr(cuda_visits, "sessions", visits)
    kept = tmp_path / "cuda.json"
    assert main(["bench", "cuda", "--device", "cuda:1", "--runs", "2", "--steps", "10", "--save", str(kept)]) == 0
    assert asked == [("cuda:1",), ("cuda:1", "10", "16", "2048", "2")]
    found = json.loads(kept.read_text())
    assert (found["parameters"]["card"], found["parameters"]["steps"]) == ("A card", 10)
    assert found["figures"]["tokens_per_s"]["runs"] == [3.0, 4.0]
    assert "gpt2.tokens_per_s" in capsys.readouterr().out
