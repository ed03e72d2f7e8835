"""`gput bench life` says that a figure grows where it does, and not where it only varies; its samples are of real processes and folders."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gput import steps as steps_table
from gput.__main__ import main
from gput.bench.figures import figures
from gput.bench.result import Figure
from gput.local import visit_bench
from gput.local.growth import Sample, sample, trends
from gput.local.life_bench import _window, named, require_hope
from shared.errors import JobFailed

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


def test_what_is_kept_of_a_life_is_defined(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(bytes(2048))
    looked = sample(0, {"holder-a": os.getpid()}, {"orchestrator": tmp_path}).figures
    costs = {"control_median_ms": 12.0, "control_p99_ms": 30.0}
    kept = figures("life", [named(trends([Sample(number, {**costs, **looked}) for number in range(1, 21)]))])
    assert len(kept) == 2 * (len(costs) + len(looked))
    assert kept["control_median_ms.last"] == Figure(unit="ms", runs=(12.0,))
    assert kept["orchestrator.database_kb.last"] == Figure(unit="kB", runs=(2.0,))
    assert kept["holder.handles.per_1000_visits"].unit == "files per 1000 visits"


def test_a_trend_of_too_few_windows_is_not_kept() -> None:
    assert named(trends([Sample(number, {"control_p99_ms": 1.0}) for number in range(3)])) == {
        "control_p99_ms.last": 1.0
    }


def test_what_is_kept_of_visits_is_defined() -> None:
    steps = [
        {"step": "plan", "median_ms": 1.0, "p99_ms": 2.0},
        {"step": steps_table.OVERHEAD, "median_ms": 7.0, "p99_ms": 8.0},
        {"step": steps_table.CONTROL, "median_ms": 3.0, "p99_ms": 4.0},
    ]
    found = visit_bench.named(steps, [{"service": "holder-a", "rss_anon_mb": 80.0001}])
    kept = figures("visit", [found])
    assert {name: figure.median for name, figure in kept.items()} == {
        "plan.median_ms": 1.0, "plan.p99_ms": 2.0, "control.median_ms": 3.0, "control.p99_ms": 4.0,
        "overhead.median_ms": 7.0, "overhead.p99_ms": 8.0, "holder-a.rss_anon_mb": 80.0,
    }  # fmt: skip
    assert kept["holder-a.rss_anon_mb"].unit == "MB"


def test_more_holders_are_held_against_fewer() -> None:
    def rows(control: float) -> list[dict[str, Any]]:
        return [{"step": steps_table.CONTROL, "median_ms": control, "p99_ms": 9.0, "share": "10.0%"}]

    memory = [{"service": "holder", "rss_anon_mb": 80.0}]
    found = visit_bench.named_by_holders({30: (rows(11.0), memory), 3: (rows(10.0), memory), 100: (rows(12.0), memory)})
    kept = figures("visit", [found])
    assert (kept["flatness"].median, kept["holders-100.control.median_ms"].unit) == (1.2, "ms")
    assert len(found) == 3 * 3 + 1
    assert "flatness" not in visit_bench.named_by_holders({30: (rows(11.0), memory)})


def test_steps_of_visits_are_shares_of_all_their_time() -> None:
    visits = [
        {"outcome": "closed", "durations": {"plan": 0.001, "provision": 0.002, "train": 0.007}},
        {"outcome": "closed", "durations": {"plan": 0.003, "provision": 0.002, "train": 0.005}},
        {"outcome": "recalled", "durations": {"plan": 9.0}},
    ]
    found = {row["step"]: row for row in steps_table.by_step(steps_table.closed(visits))}
    assert found["plan"] == {"step": "plan", "median_ms": 2.0, "p99_ms": 3.0, "share": "20.0%"}
    assert found["train"]["share"] == "60.0%"
    assert found[steps_table.CONTROL] == {**found["plan"], "step": steps_table.CONTROL}
    assert found[steps_table.OVERHEAD] == {
        "step": steps_table.OVERHEAD, "median_ms": 4.0, "p99_ms": 5.0, "share": "40.0%"
    }  # fmt: skip
    assert list(found)[-1] == steps_table.CONTROL
    assert steps_table.by_step([]) == []


@pytest.mark.parametrize(
    ("phase", "decision", "says"),
    [
        pytest.param("FAILED", "approve", "ended FAILED", id="it failed"),
        pytest.param("AWAITING_APPROVAL", "refuse", "b said refuse", id="a policy refuses"),
        pytest.param("AWAITING_APPROVAL", "veto", "b said veto", id="an operator refuses"),
    ],
)
def test_nobody_waits_for_a_session_without_hope(phase: str, decision: str, says: str) -> None:
    holders = [{"holder": "a", "decision": "approve"}, {"holder": "b", "decision": decision}]
    with pytest.raises(JobFailed, match=says):
        require_hope({"phase": phase, "failure": None, "holders": holders})
    require_hope({"phase": "RUNNING", "failure": None, "holders": [{"holder": "a", "decision": None}]})


@pytest.mark.parametrize("holders", ["2", "3,x", "", "3,257", "0x5"])
def test_numbers_of_holders_that_cannot_be_are_refused_at_once(
    holders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "visit", "--holders", holders]) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.strip().splitlines())) == ("", 1)
    assert "[bad-numbers]" in told.err


@pytest.mark.parametrize(("seconds", "said"), [([0.02, 0.03, 0.04], "9 visits, control 30.0 ms"), ([], "9 visits")])
async def test_progress_says_what_a_visit_costs_once_it_is_known(seconds: list[float], said: str) -> None:
    """Costs come a page of visits at a time, so that a window may have none."""
    session = AsyncMock(return_value={"visits_closed": 9, "phase": "RUNNING"})
    visits: Any = SimpleNamespace(client=SimpleNamespace(session=session), costs=AsyncMock(return_value=seconds))
    crowd: Any = SimpleNamespace(session="s_1", processes=dict, folders=dict)
    told = list[str]()
    await _window(visits, crowd, 9, told.append)
    assert told == [said]
