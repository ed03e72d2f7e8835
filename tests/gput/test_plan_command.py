"""`gput plan`: where costs and work come from, what is refused in one line, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gput.__main__ import main
from gput.bench.figures import figures
from gput.bench.result import read, write
from gput.commands import connection
from gput.draft import draft
from gput.local import lengths_bench
from gput.planning import Costs
from gput.tours import Tours
from orchestrator.api.examples import SESSION, VISIT
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest, Validation
from tests.built import built
from tests.gpu.gpu_world import CLASSES, FEATURES
from tests.gput.bench_samples import result
from tests.orchestrator.orchestrator_samples import manifest as agreed

Capture = pytest.CaptureFixture[str]
COSTS = Costs(control_s=0.2, data_fixed_s=0.05, byte_s=1e-8, train_fixed_s=0.05, step_s=0.03)
WORK = ("--steps", "1000", "--holders", "4", "--records-per-step", "8", "--record-bytes", "100")


@pytest.fixture(scope="module")
def archive() -> Archive:
    return open_archive(built("classifier", features=FEATURES, classes=CLASSES)[0])


@pytest.fixture
def program(archive: Archive, tmp_path: Path) -> str:
    (tmp_path / "p.gput").write_bytes(built("classifier", features=FEATURES, classes=CLASSES)[0])
    return str(tmp_path / "p.gput")


@pytest.fixture
def manifest(archive: Archive, tmp_path: Path) -> str:
    made = draft(archive, {"north": "00" * 32, "city": "11" * 32}, emulated=True)
    held = Validation(dataset="22" * 32, records=7, every_visits=2)
    (tmp_path / "m.json").write_bytes(made.model_copy(update={"validation": held}).canonical())
    return str(tmp_path / "m.json")


def saved(folder: Path, **parameters: Any) -> str:
    made = result("lengths", parameters=parameters, unit="ms", ratio=(1.0,))
    write(folder / "lengths.json", made.model_copy(update={"figures": figures("lengths", [COSTS.named()])}))
    return str(folder / "lengths.json")


def planned(capsys: Capture, *words: str) -> tuple[dict[str, Any], str]:
    assert main(["plan", *words, "--format", "json"]) == 0
    told = capsys.readouterr()
    return json.loads(told.out), told.err


def test_from_a_saved_result(tmp_path: Path, capsys: Capture) -> None:
    found, said = planned(capsys, "--from", saved(tmp_path), "--step-ms", "30", *WORK)
    assert found["steps_per_visit"] == 91  # 0.3 s ÷ (0.3 + 91 × 0.030008) is the first below a tenth
    assert found["costs"]["train_step_ms"] == 30
    assert "91 steps are the fewest" in found["why"]
    assert "nearer to pooled" in found["quality"]
    assert [row["steps_per_visit"] for row in found["lengths"]] == [1, 2, 5, 10, 20, 40, 80, 91, 160, 250]
    [row] = [row for row in found["lengths"] if row["steps_per_visit"] == 91]
    assert (row["visits"], row["rounds"], row["buffer_bytes"]) == (11, 3, 72800)
    assert said == ""


def test_the_overhead_is_the_readers_choice(tmp_path: Path, capsys: Capture) -> None:
    file = saved(tmp_path)
    found, _ = planned(capsys, "--from", file, "--step-ms", "30", "--overhead", "50", *WORK)
    assert found["steps_per_visit"] == 11
    found, _ = planned(capsys, "--from", file, "--step-ms", "0.001", *WORK)
    assert found["steps_per_visit"] is None
    assert "even one visit to each holder" in found["why"]


def test_as_a_table(tmp_path: Path, capsys: Capture) -> None:
    assert main(["plan", "--from", saved(tmp_path), "--step-ms", "30", *WORK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["steps_per_visit", "91"]
    assert lines[lines.index("lengths") + 1].split()[:3] == ["steps_per_visit", "rounds", "visits"]


def test_the_manifest_says_what_is_to_be_trained(
    manifest: str, program: str, archive: Archive, tmp_path: Path, capsys: Capture
) -> None:
    file = saved(tmp_path, program=archive.digest.hex()[:48])
    found, said = planned(capsys, manifest, "--program", program, "--from", file)
    assert found["work"] == {
        "steps": 200, "holders": 2, "records_per_step": archive.manifest.defaults.batch_size,
        "record_bytes": archive.manifest.records.record_bytes, "every_visits": 2, "tours": None,
    }  # fmt: skip
    assert found["costs"]["train_step_ms"] == 30  # it was measured with this very program
    assert "held-out checks are not counted" in said
    again, _ = planned(capsys, manifest, "--program", program, "--from", file, "--steps", "50")
    assert again["work"]["steps"] == 50


def test_without_a_file_it_measures_with_the_program(
    manifest: str, program: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def lengths(folder: Path, visits: int, say: Any, load: Any) -> Costs:
        asked.append(load)
        return COSTS

    monkeypatch.setattr(lengths_bench, "lengths", lengths)
    found, said = planned(capsys, manifest, "--program", program)
    assert found["costs"]["train_step_ms"] == 30
    assert "measuring" in said
    planned(capsys, "--step-ms", "7", *WORK)
    assert [str(load.program) for load in asked] == [program, "None"]


def visits(of: Costs, *lengths: int) -> list[dict[str, Any]]:
    return [
        {
            **VISIT, "steps": steps, "records": steps * 8, "length": steps * 800, "timers": None, "validation_after": 1.0,
            "durations": {
                "grant": of.control_s, "provision": of.data_fixed_s, "train": of.train_fixed_s + steps * of.step_s, "validate": 0.5,
            },
        } for steps in lengths
    ] + [{**VISIT, "outcome": "recalled", "durations": {}, "steps": 5, "timers": None}]  # fmt: skip


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Visits by session, as an orchestrator would tell them; a session collects or accumulates if its name says so."""
    told: dict[str, list[dict[str, Any]]] = {}

    async def find(name: str) -> str:
        return next(one for one in told if one.startswith(name))

    async def session(name: str) -> dict[str, Any]:
        return {**SESSION, "id": name, "steps_total": 120}

    async def items(path: str) -> list[dict[str, Any]]:
        return told[path.split("/")[1]]

    async def manifest(name: str) -> Manifest:
        fields: dict[str, Any] = {kind.value: "tour" for kind in Tours if kind.value in name}
        return agreed(**fields)

    async def run(work: Any) -> Any:
        return await work(SimpleNamespace(find=find, session=session, items=items, manifest=manifest))

    import asyncio

    monkeypatch.setattr(connection, "connect", lambda url, key, work: asyncio.run(run(work)))
    return told


def ask(*names: str) -> list[str]:
    return [*(word for name in names for word in ("--session", name)), "--url", "http://127.0.0.1:9", "--key", "k"]


def test_from_sessions_that_were(sessions: dict[str, Any], capsys: Capture) -> None:
    sessions.update(s_abc=visits(COSTS, 1, 1, 1), s_xyz=visits(COSTS, 4, 4, 4, 8, 8))
    found, said = planned(capsys, *ask("s_abc", "s_x"))  # a beginning does
    assert found["work"] == {
        "steps": 120, "holders": 1, "records_per_step": 8, "record_bytes": 100, "every_visits": None, "tours": None,
    }  # fmt: skip
    assert (found["costs"]["train_step_ms"], found["costs"]["check_ms"]) == (pytest.approx(30), 500)
    assert (found["steps_per_visit"], said) == (90, "")


@pytest.mark.parametrize(("lengths", "words", "code"), [
    ((4, 4), (), "too-few-visits"), ((4,) * 9, (), "one-length"), ((4,) * 9, ("--step-ms", "30"), None),
])  # fmt: skip
def test_a_session_of_one_length_needs_a_steps_time(
    lengths: tuple[int, ...], words: tuple[str, ...], code: str | None, sessions: dict[str, Any], capsys: Capture
) -> None:
    sessions["s_1"] = visits(COSTS, *lengths)
    assert main(["plan", *ask("s_1"), *words]) == (0 if code is None else 2)
    assert (f"[{code}]" in capsys.readouterr().err) == (code is not None)


@pytest.fixture
def toured(archive: Archive, tmp_path: Path) -> Callable[[Tours], str]:
    """A manifest of such tours."""

    def write_manifest(tours: Tours) -> str:
        made = draft(archive, {"north": "00" * 32, "city": "11" * 32}, emulated=True)
        (tmp_path / "tours.json").write_bytes(made.model_copy(update=tours.fields).canonical())
        return str(tmp_path / "tours.json")

    return write_manifest


@pytest.mark.parametrize(("tours", "assumed", "steps"), [
    # A visit takes 0.25 s and a tour's end 0.05 s: 0.5 + 0.05 a round, a ninth of 2 × n × 0.03 at n = 83.
    (Tours.COLLECT, "a buffer for each holder", 83),
    # A visit takes 0.3 s and a tour's end 0.25 s: 0.6 + 0.25 a round.
    (Tours.ACCUMULATE, "memory for one more model", 128),
])  # fmt: skip
def test_a_manifest_that_asks_for_tours_is_planned_by_rounds(
    tours: Tours, assumed: str, steps: int, toured: Any, program: str, archive: Archive, tmp_path: Path, capsys: Capture
) -> None:
    file = saved(tmp_path, program=archive.digest.hex()[:48])
    words = (toured(tours), "--program", program, "--from", file, "--steps", "1000", "--record-bytes", "1")
    found, _ = planned(capsys, *words)
    assert found["work"]["tours"] == tours.value
    assert found["steps_per_visit"] == steps
    assert assumed in found["assumed"]
    assert "no tour was measured" in found["assumed"]
    assert "favours anybody" in found["quality"]
    assert found["costs"]["tour_ms"] is None
    plain, _ = planned(capsys, "--from", file, *WORK)
    assert plain["assumed"] == "costs are those of visits that train when they come"
    asked, _ = planned(capsys, "--from", file, "--tours", tours.value, *WORK)
    assert asked["work"]["tours"] == tours.value


@pytest.mark.parametrize(("words", "code"), [
    (("MANIFEST", "s_collect"), "other-tours"), (("s_collect", "s_accumulate"), "other-tours"), (("s_collect", "s_1"), "other-tours"),
    (("s_accumulate", "--tours", "collect"), "other-tours"), (("s_1", "--tours", "collect"), None), (("s_accumulate",), None),
    (("s_collect",), "one-length"), (("s_collect", "--step-ms", "30"), None),
])  # fmt: skip
def test_visits_of_a_tour_say_what_such_a_tour_costs_and_nothing_else(
    words: tuple[str, ...],
    code: str | None,
    archive: Archive,
    sessions: dict[str, Any],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    for name in ("s_1", "s_collect", "s_accumulate"):
        sessions[name] = visits(COSTS, 1, 1, 1, 4, 4, 4)
    ordinary = draft(archive, {"north": "00" * 32}, emulated=True).model_copy(update={"program": SESSION["program"]})
    (tmp_path / "ordinary.json").write_bytes(ordinary.canonical())
    line = [
        str(tmp_path / "ordinary.json") if word == "MANIFEST" else word for word in words if not word.startswith("s_")
    ]
    assert main(["plan", *line, *ask(*(word for word in words if word.startswith("s_")))]) == (0 if code is None else 2)
    assert (f"[{code}]" in capsys.readouterr().err) == (code is not None)


@pytest.mark.parametrize(("words", "says"), [
    (("--step-ms", "30"), "[incomplete-plan]"),
    (("--step-ms", "30"), "--steps, --holders, --records-per-step, --record-bytes"),
    (WORK, "[no-costs]"),
    (("absent.json",), "[no-manifest]"),
    (("--program", "absent"), "[no-program]"),
    (("--from", "absent", "--step-ms", "1", *WORK), "[no-file]"),
    (("--from", "TRAVEL", *WORK), "[no-step]"),
    (("--from", "RECEIPTS", "--step-ms", "1", *WORK), "[other-bench]"),
    (("MANIFEST", "--from", "OTHER", "--record-bytes", "100"), "[other-program]"),
    (("--session", "s_1", *WORK), "[no-url]"),
    (("--from", "TRAVEL", *ask("s_1"), *WORK), "[two-sources]"),
    (("MANIFEST", *ask("s_1")), "[other-program]"),
])  # fmt: skip
def test_what_is_missing_or_does_not_fit_is_said_in_one_line(
    words: tuple[str, ...], says: str, manifest: str, sessions: dict[str, Any], tmp_path: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("GPUT_URL", raising=False)
    sessions["s_1"] = visits(COSTS, 1, 1, 1, 4, 4, 4)
    (tmp_path / "other").mkdir()
    write(tmp_path / "receipts.json", result(seconds=(1.0,)))
    files = {
        "TRAVEL": saved(tmp_path), "OTHER": saved(tmp_path / "other", program="ab" * 24), "MANIFEST": manifest,
        "RECEIPTS": str(tmp_path / "receipts.json"),
    }  # fmt: skip
    assert main(["plan", *(files.get(word, word) for word in words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    [line] = told.err.splitlines()
    assert says in line


@pytest.mark.slow
def test_lengths_are_measured_with_real_visits(program: str, tmp_path: Path, capsys: Capture) -> None:
    weights = built("classifier", features=FEATURES, classes=CLASSES)[1]
    Path(program).with_suffix(".safetensors").write_bytes(weights)
    file = tmp_path / "lengths.json"
    assert (
        main(["bench", "lengths", "--visits", "9", "--program", program, "--save", str(file), "--format", "json"]) == 0
    )
    [row] = json.loads(capsys.readouterr().out)
    kept = read(file)
    assert {name: figure.median for name, figure in kept.figures.items()} == row
    assert row["control_ms"] > 0
    found, _ = planned(
        capsys, "--program", program, "--from", str(file), "--step-ms", "50", "--steps", "90", "--holders", "3"
    )
    assert found["lengths"][0]["wall_s"] > 90 * 0.05
