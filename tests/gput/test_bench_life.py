"""`gput bench life` says that a figure grows where it does, and not where it only varies; its samples are of real processes and folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gput.local.growth import Sample, sample, trends

NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.4, -0.3, 0.0, -0.1, 0.3)


def run(rise: float, noise: float = 1.0, windows: int = 20) -> str:
    """The verdict on a figure of about 100 that rises by so much a window."""
    samples = [
        Sample(100 * number, {"figure": 100 + rise * number + noise * NOISE[number % len(NOISE)]})
        for number in range(1, windows + 1)
    ]
    (row,) = trends(samples)
    return str(row["grows"])


@pytest.mark.parametrize(
    ("rise", "noise", "grows"),
    [
        pytest.param(0.0, 1.0, "no", id="it varies"),
        pytest.param(0.0, 0.0, "no", id="it stands still"),
        pytest.param(0.5, 1.0, "yes", id="it rises by a twelfth"),
        pytest.param(0.5, 30.0, "no", id="it varies by more than it rises"),
        pytest.param(0.01, 0.0, "no", id="it rises by too little to matter"),
        pytest.param(-1.0, 1.0, "no", id="it falls"),
    ],
)
def test_growth_is_a_trend_against_its_spread(rise: float, noise: float, grows: str) -> None:
    assert run(rise, noise) == grows


def test_what_only_the_first_windows_cost_is_no_growth() -> None:
    samples = [Sample(number, {"figure": min(number, 4) * 100.0}) for number in range(1, 21)]
    (row,) = trends(samples)
    assert (row["first"], row["last"], row["grows"]) == (400.0, 400.0, "no")


def test_too_few_windows_say_so() -> None:
    assert run(1.0, windows=3) == "too few windows"


def test_a_sample_is_of_processes_and_folders(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(bytes(2048))
    (tmp_path / "state.db-wal").write_bytes(bytes(1024))
    (tmp_path / "model").write_bytes(bytes(512))
    with (tmp_path / "model").open("rb"):
        held = sample(7, {"holder-a": os.getpid(), "holder-b": os.getpid()}, {"holder": tmp_path})
    found = sample(8, {"holder-a": os.getpid()}, {"holder": tmp_path})
    assert (found.figures["holder database_kb"], found.figures["holder files_kb"]) == (3.0, 0.5)
    assert held.figures["holder handles"] == found.figures["holder handles"] + 1
    assert found.figures["holder rss_anon_mb"] > 1
    assert found.figures["holder threads"] >= 1
