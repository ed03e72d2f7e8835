"""A bench's result comes back from its file as it went in; what is no such file, or a later schema's, is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gput.__main__ import main
from gput.bench.figures import BENCHES, figures
from gput.bench.result import FORMAT, MAX_BYTES, Figure, Machine, Program, Result, encoded, moment, parse, read, write
from shared.errors import BadRequest
from tests.gput.bench_samples import result

finite = st.floats(allow_nan=False, allow_infinity=False)


def ascii_matching(pattern: str) -> st.SearchStrategy[str]:
    return st.from_regex(pattern, fullmatch=True)


names = ascii_matching(r"[a-z0-9][a-z0-9_.-]{0,20}")
results = st.builds(
    Result,
    bench=names,
    parameters=st.dictionaries(names, st.none() | st.integers(-(2**53), 2**53) | finite | ascii_matching(r"[A-Za-z][A-Za-z @.]{0,9}")),
    at=st.integers(0, 2**33).map(moment),
    program=st.builds(Program, version=st.just("1.2.3"), commit=st.none() | ascii_matching("[0-9a-f]{40}")),
    machine=st.builds(
        Machine, cpu=st.just("A CPU"), cores=st.integers(1, 512), memory_bytes=st.integers(0, 2**45), kernel=st.just("6.1"),
        python=st.just("3.11.7"), pytorch=st.sampled_from([None, "2.13.0+cpu"]), load_average=st.floats(0, 1e6),
    ),
    figures=st.dictionaries(
        names, st.builds(Figure, unit=st.sampled_from(["ms", "1/s"]), runs=st.lists(finite, min_size=1, max_size=5).map(tuple)),
        min_size=1, max_size=5,
    ),
)  # fmt: skip


@settings(max_examples=40)
@given(results)
def test_what_is_written_is_read(found: Result) -> None:
    again = parse(encoded(found), "it")
    assert again == found
    assert encoded(again) == encoded(found)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | finite, st.lists).map(lambda v: json.dumps(v).encode())
)
def test_no_other_bytes_are_a_result(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data, "it")


def document(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encoded(result(seconds=(1.0,)))), **changes}).encode()


@pytest.mark.parametrize(("data", "code", "says"), [
    (b"", "not-a-bench-result", "not strict JSON"),
    (b"[1]", "not-a-bench-result", "schema gput-bench/1"),
    (b" " * (MAX_BYTES + 1), "not-a-bench-result", "exceeds"),
    (document(format="gput-bench/2"), "newer-bench-result", "gput-bench/2"),
    (document(format="gput-bench/0"), "not-a-bench-result", "schema"),
    (document(format="gput-bench/1e9"), "not-a-bench-result", "schema"),
    (document(format="gput-bench/" + "9" * 5000), "not-a-bench-result", "schema"),
    (document(format="gput-bench/²"), "not-a-bench-result", "schema"),
    (document(format=7), "not-a-bench-result", "schema"),
    (document(host="ward-7.example.org"), "not-a-bench-result", "host: Extra inputs"),
    (document(figures={}), "not-a-bench-result", "figures"),
    (document(figures={"seconds": {"unit": "s", "runs": []}}), "not-a-bench-result", "runs"),
    (document(figures={"seconds": {"unit": "s", "runs": ["1; rm"]}}), "not-a-bench-result", "runs"),
    (document(figures={"seconds": {"unit": "s", "runs": [10**400]}}), "not-a-bench-result", "runs"),
    (document(figures={"seconds": {"unit": "s", "runs": [float("nan")]}}), "not-a-bench-result", "NaN"),
    (document().replace(b"1.0", b"1e999"), "not-a-bench-result", "too large a number"),
    (document(figures={"\x1b[2J": {"unit": "s", "runs": [1]}}), "not-a-bench-result", "x1b"),
    (document(parameters={"file": "/home/alice/x"}), "not-a-bench-result", "parameters"),
    (document(at="now"), "not-a-bench-result", "at"),
    (document()[:-1] + b', "at": "2026-01-02T03:04:05Z"}', "not-a-bench-result", "duplicate"),
])  # fmt: skip
def test_what_is_no_result_is_refused_in_one_line(
    data: bytes, code: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_bytes(data)
    write(good, result(seconds=(1.0,)))
    for pair in ((bad, good), (good, bad)):
        assert main(["bench", "compare", *map(str, pair)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        [line] = told.err.splitlines()
        assert f"[{code}]" in line
        assert says in line
        assert line.isprintable()
        assert len(line) < 500


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", str(tmp_path / "absent"), str(tmp_path)]) == 2
    assert "[no-file]" in capsys.readouterr().err


def test_a_file_is_written_whole_and_over_the_one_before(tmp_path: Path) -> None:
    for seconds in (1.0, 2.0):
        write(tmp_path / "r.json", result(seconds=(seconds,)))
    assert read(tmp_path / "r.json").figures["seconds"].runs == (2.0,)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert json.loads((tmp_path / "r.json").read_bytes())["format"] == FORMAT


def test_a_figure_stands_for_its_runs() -> None:
    figure = Figure(unit="s", runs=(4.0, 1.0, 2.0))
    assert (figure.least, figure.median, figure.most) == (1.0, 2.0, 4.0)


def test_runs_are_put_together_by_figure() -> None:
    found = figures("training", [{"short.ours_s": 1, "short.ratio": 1.5}, {"short.ours_s": 2}])
    seconds, ratio = Figure(unit="s", runs=(1.0, 2.0)), Figure(unit="times", runs=(1.5,))
    assert found == {"short.ours_s": seconds, "short.ratio": ratio}
    with pytest.raises(KeyError, match="nonsense"):
        figures("training", [{"nonsense": 1.0}])


def test_every_definition_is_reached_by_a_name() -> None:
    for bench in BENCHES.values():
        for definition in bench.definitions:
            name = definition.pattern.replace("*", "some")
            assert bench.definition(name) is definition, definition.pattern
