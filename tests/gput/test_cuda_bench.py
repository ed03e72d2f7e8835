"""`gput bench cuda`: its two measurements run for real on the stand-in device; without a GPU the command says so in one line."""

from __future__ import annotations

import pytest
import torch

from gput.__main__ import main
from gput.bench.figures import figures
from gput.local.cuda_bench import main as measure
from gput.local.cuda_bench import training, transfer

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
    assert list(measure("cuda:0", 10, 1, 2)) == ["absent"]


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:x", "cuda:0 "])
def test_a_name_that_is_no_cuda_device_is_refused(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "cuda", "--device", device]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_it_measures_are_figures_of_the_bench() -> None:
    threads = torch.get_num_threads()
    found = transfer("cpu", 8) | training("cpu", 5, 2, TINY)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    assert set(figures("cuda", [found])) == set(found)
    assert found.pop("loss_apart") < 0.01
    assert all(value > 0 for value in found.values())
