"""`gput session rehearse`: what is refused before anything runs, what is printed, and one rehearsal with real processes."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from gput.__main__ import main
from gput.draft import draft
from gput.local import rehearsal
from gput.local.rehearsal import Part, Played
from gput.rehearsing import MEANS, rehearsed
from gput.schemas import OUTPUTS
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.records import RecordSchema
from shared.errors import TimedOut, Unavailable
from tests.built import built
from tests.gpu.gpu_world import CLASSES, FEATURES
from tests.gput.test_rehearsing import KEYS, visit

Capture = pytest.CaptureFixture[str]
POLICY = 'dataset = "patients"\n[limits]\nmax_rounds = 100\nmin_privacy_floor = 1\n[output]\nrelease_to = ["owner"]\n'


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Manifest and program, as the command's words."""
    content, weights = built("classifier", features=FEATURES, classes=CLASSES)
    (tmp_path / "p.gput").write_bytes(content)
    (tmp_path / "p.safetensors").write_bytes(weights)
    made = draft(open_archive(content), {"north": "00" * 32, "city": "11" * 32}, emulated=False)
    (tmp_path / "m.json").write_bytes(made.model_copy(update={"steps_per_visit": 2}).canonical())
    return [str(tmp_path / "m.json"), "--program", str(tmp_path / "p.gput")]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the played session says; `part` is what was asked of it."""
    told: dict[str, Any] = {
        "phase": "COMPLETED", "part": None, "failure": None, "gpu": {"gput_gpu_training_bytes": 5e6, "gput_gpu_memory_bytes": 8e9},
        "visits": [visit(holder, mean_loss=loss) for holder in KEYS for loss in (2.0, 1.0)], "refusals": {},
    }  # fmt: skip

    async def rehearse(folder: Path, part: Part, seconds: float, say: Any) -> Played:
        told["part"] = part
        run, changes = rehearsed(part.manifest, KEYS, visits=part.visits, steps=part.steps)
        session = {"phase": told["phase"], "failure": told["failure"]}
        return Played(run, changes, session, told["visits"], told["gpu"], told["refusals"])

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    return told


def rehearse(capsys: Capture, *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["session", "rehearse", *words, "--format", "json"])
    told = capsys.readouterr()
    found = json.loads(told.out)
    TypeAdapter(OUTPUTS["session rehearse"]).validate_python(found)
    return code, found, told.err


def test_all_that_fits(files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    code, found, said = rehearse(capsys, *files, "--visits", "2", "--records", "50", "--seed", "4", "--steps", "1")
    assert (code, found["fits"], found["phase"]) == (0, True, "COMPLETED"), said
    assert [(row["holder"], row["visits"], row["falling"]) for row in found["holders"]] == [
        ("north", "2 of 2", True), ("city", "2 of 2", True),
    ]  # fmt: skip
    assert {row["passes"] for row in found["holders"]} == {10 * 2 * 8 / 50}
    assert (played["part"].visits, played["part"].steps, played["part"].seed) == (2, 1, 4)
    assert main(["session", "rehearse", *files]) == 0
    out = capsys.readouterr().out
    assert "buffer_needed" in out
    measured = found["measured"]
    assert (measured["training_bytes"], measured["gpu_bytes"]) == (5_000_000, 8_000_000_000)
    assert measured["share"] == round((found["memory"]["total"] + 5e6) / 8e9, 6)
    assert re.search(r"^measured\.training_bytes +5000000 *$", out, re.M)
    assert re.search(r"^measured\.means .*resident", out, re.M)
    assert "COMPLETED" in out


def test_a_visit_that_fails(files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    played["visits"][2] |= {"outcome": "rejected", "reason": "the training loss is not finite", "mean_loss": None}
    code, found, said = rehearse(capsys, *files)
    assert (code, found["fits"]) == (1, False)
    assert [(row["about"], row["code"]) for row in found["remarks"] if row["level"] == "fault"] == [
        ("city", "visit-failed")
    ]
    assert "the training loss is not finite" in said
    assert "[rehearsal-failed]" in said


def test_the_log_that_a_service_left_is_there_to_be_read(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    logs: list[Path] = []

    async def failing(folder: Path, *_: Any) -> Played:
        logs.append(folder / "logs" / "holder-north.log")
        logs[0].parent.mkdir()
        logs[0].write_text("why")
        raise Unavailable("holder-north ended", code="service-ended", remedy=f"The whole log is {logs[0]}.")

    monkeypatch.setattr(rehearsal, "rehearse", failing)
    assert main(["session", "rehearse", *files]) == Unavailable.exit_code
    try:
        assert str(logs[0]) in capsys.readouterr().err
        assert logs[0].read_text() == "why"
    finally:
        shutil.rmtree(logs[0].parents[1])


def test_a_session_that_fails_without_a_visits_fault(files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    played |= {"phase": "FAILED", "failure": {"detail": "nobody approved"}, "visits": []}
    code, found, said = rehearse(capsys, *files)
    assert (code, found["fits"]) == (1, False)
    assert "nobody approved" in said


def test_a_holder_of_it_that_refused_is_a_fault(files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    """Also where a quorum did without it."""
    played["refusals"] = {"city": "session.continuation: expected absent or refused, got remaining"}
    code, found, said = rehearse(capsys, *files)
    assert (code, found["fits"], found["phase"]) == (1, False, "COMPLETED")
    [fault] = [row for row in found["remarks"] if row["level"] == "fault"]
    assert (fault["about"], fault["code"]) == ("city", "rehearsal-refused")
    assert re.search(r"session\.continuation: expected absent or refused.*\[rehearsal-failed\]", said)


def test_training_that_takes_more_than_the_gpu_has(files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    played["gpu"] = {"gput_gpu_training_bytes": 8e9, "gput_gpu_memory_bytes": 8e9}
    code, found, _ = rehearse(capsys, *files)
    assert (code, found["fits"]) == (0, True), "another kernel may take less"
    assert "gpu-memory-short" in {row["code"] for row in found["remarks"]}
    played["gpu"] = {}
    _, found, _ = rehearse(capsys, *files)
    assert found["measured"] == {"training_bytes": None, "gpu_bytes": None, "share": None, "means": MEANS}


async def test_an_agent_that_does_not_answer_measured_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await rehearsal.measured(f"http://127.0.0.1:{port}/metrics") == {}


def mock(files: list[str], folder: Path, **changes: Any) -> Path:
    """Mock data of the program's schema, with other arrays where they are named."""
    from gput.local.made_up import arrays

    schema: RecordSchema = open_archive(Path(files[2]).read_bytes()).manifest.records
    values: dict[str, Any] = {**arrays(schema, 20, 1), **changes}
    np.savez(folder / "mock.npz", **values)
    return folder / "mock.npz"


@pytest.mark.parametrize(("changes", "code", "says"), [
    ({"features": np.zeros((20, FEATURES + 1), np.float32)}, "data-wrong-shape", "has shape"),
    ({"features": np.zeros((20, FEATURES), np.float64)}, "data-wrong-type", "float64"),
    ({"label": np.full(20, CLASSES, np.int64)}, "data-out-of-range", "outside"),
])  # fmt: skip
def test_records_that_do_not_fit_are_said_of_before_anything_runs(
    changes: dict[str, Any],
    code: str,
    says: str,
    files: list[str],
    played: dict[str, Any],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    ended, found, said = rehearse(capsys, *files, "--data", f"city={mock(files, tmp_path, **changes)}")
    assert (ended, found["phase"], played["part"]) == (1, "not run", None)
    faults = [row for row in found["remarks"] if row["level"] == "fault"]
    assert {(row["about"], row["code"]) for row in faults} == {("city", code)}
    assert says in faults[0]["reason"]
    assert faults[0]["remedy"]
    assert "[rehearsal-failed]" in said


def test_records_that_fit_take_the_place_of_made_up_ones(
    files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    code, found, _ = rehearse(capsys, *files, "--data", f"city={mock(files, tmp_path)}")
    assert code == 0
    assert played["part"].data == {"city": tmp_path / "mock.npz"}
    assert {row["passes"] for row in found["holders"]} == {None}, "the holder's own are others"


def test_a_policy_that_would_refuse(files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    code, found, _ = rehearse(capsys, *files, "--policy", f"north={tmp_path / 'policy.toml'}")
    assert (code, found["phase"]) == (1, "not run")
    refusals = " ".join(row["reason"] for row in found["remarks"] if row["code"] == "policy-refuses")
    assert ("programs" in refusals, "max_rounds" in refusals) == (True, False)


def test_a_policy_that_names_owners_is_told_and_refuses_nothing(
    files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY + f'[session]\nowners = ["{"ab" * 32}"]\n')
    _, found, _ = rehearse(capsys, *files, "--policy", f"north={tmp_path / 'policy.toml'}")
    [told] = [row for row in found["remarks"] if row["code"] == "policy-names-owners"]
    assert (told["level"], "ab" * 32 in told["reason"]) == ("note", True)
    assert not [row for row in found["remarks"] if "session.owners" in row["reason"]]


@pytest.mark.parametrize(("words", "code"), [
    (("--program", "OTHER"), "other-program"), (("--program", "absent"), "no-program"), (("--weights", "absent"), "no-weights"),
])  # fmt: skip
def test_what_cannot_be_rehearsed_is_said_in_one_line(
    words: tuple[str, ...], code: str, files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "other.gput").write_bytes(built("classifier", features=FEATURES, classes=CLASSES + 1)[0])
    named = [str(tmp_path / "other.gput") if word == "OTHER" else word for word in words]
    assert main(["session", "rehearse", *files, *named]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"[{code}]" in told.err.splitlines()[-1]


def starting_from(manifest: str, weights: bytes) -> None:
    said = json.loads(Path(manifest).read_text()) | {"initial_weights": sha256(weights).hex()}
    Path(manifest).write_text(json.dumps(said))


@pytest.mark.parametrize("named", [False, True], ids=["by the program", "by the manifest, too"])
def test_the_programs_own_weights_lie_beside_it_as_when_it_is_submitted(
    named: bool, files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    own = tmp_path / "p.safetensors"
    if named:
        starting_from(files[0], own.read_bytes())
    for words in ((), ("--weights", str(own))):
        assert rehearse(capsys, *files, *words)[0] == 0
        assert played["part"].weights == own.read_bytes()
    own.write_bytes(b"others")
    assert main(["session", "rehearse", *files]) == 2
    assert "is not the weights that" in capsys.readouterr().err


def test_weights_that_the_manifest_names_are_given(
    files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"of an earlier session")
    starting_from(files[0], b"of an earlier session")
    assert rehearse(capsys, *files, "--weights", str(tmp_path / "w.safetensors"))[0] == 0
    assert played["part"].weights == b"of an earlier session"
    assert main(["session", "rehearse", *files]) == 2
    assert "--weights. [no-weights]" in capsys.readouterr().err


@pytest.mark.parametrize("named", [False, True])
def test_weights_that_no_session_would_start_from_are_refused(
    named: bool, files: list[str], played: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "other.safetensors").write_bytes(b"others")
    if named:
        starting_from(files[0], b"of an earlier session")
    assert main(["session", "rehearse", *files, "--weights", str(tmp_path / "other.safetensors")]) == 2
    assert "[not-named]" in capsys.readouterr().err
    assert played["part"] is None


@pytest.mark.parametrize("word", ["city", "city=", "=x", "nobody=x"])
def test_whose_data_they_are_must_be_said(word: str, files: list[str], played: dict[str, Any], capsys: Capture) -> None:
    assert main(["session", "rehearse", *files, "--data", word]) == 2
    assert "HOLDER=PATH" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.processes
def test_a_rehearsal_with_real_processes(files: list[str], tmp_path: Path, capsys: Capture) -> None:
    """Every step of the protocol for real: with held-out records, one holder's mock data, and a schema whose labels the model has not.
    Nor is any holder needed, either's share gives the key away, another session may go on without either: its policy is as the manifest.
    """
    manifest = json.loads(Path(files[0]).read_text())
    manifest |= {"quorum": 1, "recovery_shares": 1, "continuation": "remaining"}
    manifest["validation"] = {"dataset": "22" * 32, "records": 9, "every_visits": 2}
    Path(files[0]).write_text(json.dumps(manifest))
    data = mock(files, tmp_path)
    code, found, said = rehearse(capsys, *files, "--visits", "2", "--data", f"city={data}")
    assert (code, found["fits"]) == (0, True), said
    assert [row["visits"] for row in found["holders"]] == ["2 of 2", "2 of 2"]
    assert all(row["records"] == 2 * 2 * 8 and row["first_loss"] and row["visit_ms"] for row in found["holders"])
    assert 0 < found["measured"]["training_bytes"] < found["measured"]["gpu_bytes"] <= 80 << 30
    assert 0 < found["measured"]["share"] < 1


@pytest.mark.slow
@pytest.mark.processes
def test_a_rehearsal_that_takes_too_long(files: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["session", "rehearse", *files, "--timeout", "1"]) == TimedOut.exit_code
    assert "[rehearsal-timed-out]" in capsys.readouterr().err
