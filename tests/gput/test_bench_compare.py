"""`gput bench compare`: verdicts at their edges, what makes two results hard to compare, what is refused, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gput.__main__ import main
from gput.bench.compare import Verdict, compare, doubts, worst
from gput.bench.result import Result, write
from shared.errors import BadRequest
from tests.gput.bench_samples import result

Runs = tuple[float, ...]


@pytest.mark.parametrize(("old", "new", "verdict", "worse_by"), [
    pytest.param((100.0,), (110.0,), Verdict.WITHIN_NOISE, 0, id="one run each, a tenth apart"),
    pytest.param((100.0,), (111.0,), Verdict.WORSE, 0.11, id="one run each, more than a tenth"),
    pytest.param((100.0,), (90.0,), Verdict.WITHIN_NOISE, 0, id="a tenth better"),
    pytest.param((100.0,), (89.0,), Verdict.BETTER, 0, id="more than a tenth better"),
    pytest.param((100.0, 100.0), (110.0, 110.0), Verdict.WITHIN_NOISE, 0, id="two runs show no spread"),
    pytest.param((100.0, 100.0, 100.0), (110.0, 110.0), Verdict.WITHIN_NOISE, 0, id="nor where the other side has three"),
    pytest.param((100.0, 100.0, 100.0), (105.0, 105.0, 105.0), Verdict.WORSE, 0.05, id="three runs do"),
    pytest.param((1.0, 1.1, 1.2), (1.2, 1.9, 2.0), Verdict.WITHIN_SPREAD, 0, id="the ranges touch"),
    pytest.param((1.0, 1.1, 1.2), (1.21, 1.9, 2.0), Verdict.WORSE, 1.9 / 1.1 - 1, id="the ranges do not touch"),
    pytest.param((1.0, 2.0, 9.0), (5.0,), Verdict.WITHIN_SPREAD, 0, id="one run inside the other side's range"),
    pytest.param((2.0, 2.0, 2.0), (2.0, 2.0, 2.0), Verdict.WITHIN_SPREAD, 0, id="the same"),
    pytest.param((2.0,), (2.0,), Verdict.WITHIN_NOISE, 0, id="the same, once each"),
    pytest.param((0.0,), (0.0,), Verdict.WITHIN_NOISE, 0, id="nothing and nothing"),
    pytest.param((0.0,), (1.0,), Verdict.WORSE, float("inf"), id="something where there was nothing"),
    pytest.param((1.0,), (0.0,), Verdict.BETTER, 0, id="nothing where there was something"),
])  # fmt: skip
def test_verdict_on_a_figure_that_is_better_when_lower(old: Runs, new: Runs, verdict: Verdict, worse_by: float) -> None:
    [change] = compare(result(seconds=old), result(seconds=new))
    assert change.verdict is verdict
    assert change.worse_by == pytest.approx(worse_by)
    assert (change.ratio is None) == (sorted(old)[len(old) // 2] == 0)


@pytest.mark.parametrize(("new", "verdict", "worse_by"), [
    ((90.0,), Verdict.WITHIN_NOISE, 0), ((80.0,), Verdict.WORSE, 0.25), ((120.0,), Verdict.BETTER, 0),
    ((0.0,), Verdict.WORSE, float("inf")),
])  # fmt: skip
def test_verdict_on_a_rate(new: Runs, verdict: Verdict, worse_by: float) -> None:
    [change] = compare(result(receipts_per_s=(100.0,), unit="1/s"), result(receipts_per_s=new, unit="1/s"))
    assert (change.verdict, change.worse_by) == (verdict, pytest.approx(worse_by))


values = st.lists(st.floats(0, 1e9), min_size=1, max_size=6).map(tuple)


@given(values, values)
def test_what_is_better_one_way_is_worse_the_other(old: Runs, new: Runs) -> None:
    there, back = (compare(result(seconds=a), result(seconds=b))[0] for a, b in ((old, new), (new, old)))
    mirrored = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    if min(len(old), len(new)) >= 3:  # the noise of few runs is a share of the old one
        assert back.verdict is mirrored.get(there.verdict, there.verdict)
    assert (there.worse_by > 0) == (there.verdict is Verdict.WORSE)


@given(values)
def test_a_result_is_not_different_from_itself(runs: Runs) -> None:
    [change] = compare(result(seconds=runs), result(seconds=runs))
    assert change.verdict in (Verdict.WITHIN_NOISE, Verdict.WITHIN_SPREAD)


def test_what_cannot_be_judged_is_shown_all_the_same() -> None:
    old = result("life", **{"agent.rss_anon_mb.per_1000_visits": (1.0,), "a_ms.last": (1.0,), "unheard-of": (1.0,)})
    new = result("life", **{"agent.rss_anon_mb.per_1000_visits": (9.0,), "b_ms.last": (1.0,), "unheard-of": (9.0,)})
    assert [(change.figure, change.verdict) for change in compare(old, new)] == [
        ("agent.rss_anon_mb.per_1000_visits", Verdict.NOT_JUDGED), ("a_ms.last", Verdict.ONLY_OLD),
        ("unheard-of", Verdict.NOT_JUDGED), ("b_ms.last", Verdict.ONLY_NEW),
    ]  # fmt: skip
    [other_unit] = compare(result(seconds=(1.0,)), result(seconds=(900.0,), unit="ms"))
    assert other_unit.verdict is Verdict.NOT_JUDGED
    [unknown] = compare(result("later", seconds=(1.0,)), result("later", seconds=(2.0,)))
    assert unknown.verdict is Verdict.NOT_JUDGED


def test_another_bench_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"gput bench receipts.*gput bench training") as refused:
        compare(result(seconds=(1.0,)), result("training", ours_s=(1.0,)))
    assert refused.value.code == "other-bench"


@pytest.mark.parametrize(("change", "says"), [
    ({}, []),
    ({"machine": {"memory_bytes": (8 << 30) + 4096}}, []),
    ({"machine": {"load_average": 2.0}}, []),
    ({"machine": {"cpu": "Other CPU"}}, ["another machine", "cpu Some CPU @ 2.00GHz → Other CPU"]),
    ({"machine": {"cores": 64, "memory_bytes": 16 << 30}}, ["another machine", "cores 2 → 64", "memory_bytes"]),
    ({"machine": {"kernel": "6.2"}}, ["other software", "kernel 6.1 → 6.2"]),
    ({"machine": {"pytorch": "2.13.0"}}, ["other software", "pytorch None → 2.13.0"]),
    ({"machine": {"load_average": 2.1}}, ["the new one's machine was busy", "load average 2.1 on 2 cores"]),
    ({"parameters": {"receipts": 201}}, ["other parameters", "receipts 200 → 201"]),
    ({"parameters": {}}, ["other parameters", "receipts 200 → None"]),
])  # fmt: skip
def test_what_else_differs_is_said(change: dict[str, Any], says: list[str]) -> None:
    told = doubts(result(seconds=(1.0,)), result(seconds=(1.0,), **change))
    assert len(told) == bool(says)
    assert all(words in told[0] for words in says)


def test_the_worst_figure_counts() -> None:
    changes = compare(result(seconds=(1.0,), ratio=(1.0,)), result(seconds=(1.5,), ratio=(2.0,)))
    found = worst(changes, 49)
    assert found is not None
    assert found.figure == "ratio"
    assert worst(changes, 100) is None
    assert worst([], 0) is None


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def save(*results: Result) -> list[str]:
        paths = [tmp_path / f"{number}.json" for number in range(len(results))]
        for path, one in zip(paths, results, strict=True):
            write(path, one)
        return list(map(str, paths))

    return save


@pytest.mark.parametrize(("options", "code"), [
    ((), 0), (("--fail-worse", "10"), 1), (("--fail-worse", "19"), 1), (("--fail-worse", "20"), 0), (("--fail-worse", "-1"), 2),
])  # fmt: skip
def test_the_command_and_its_exit_code(
    options: tuple[str, ...], code: int, files: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = files(result(seconds=(10.0,)), result(seconds=(12.0,), machine={"cores": 4}))
    assert main(["bench", "compare", *saved, "--format", "json", *options]) == code
    told = capsys.readouterr()
    if code < 2:
        assert json.loads(told.out) == [
            {"figure": "seconds", "unit": "s", "old": 10.0, "new": 12.0, "ratio": 1.2, "verdict": "worse"}
        ]
        assert "warning: another machine" in told.err
        assert ("[bench-worse]" in told.err) == (code == 1)


def test_a_better_figure_fails_nobody(files: Any) -> None:
    saved = files(result(seconds=(12.0,)), result(seconds=(1.0,)))
    assert main(["bench", "compare", *saved, "--fail-worse", "0"]) == 0


def test_the_command_refuses_another_bench_in_one_line(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    saved = files(result(seconds=(1.0,)), result("training", ours_s=(1.0,)))
    assert main(["bench", "compare", *saved]) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert "[other-bench]" in told.err
