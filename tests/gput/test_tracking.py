"""A session's curves are what the API says, and come back out of TensorBoard's and MLflow's own files."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from gput.__main__ import main
from gput.commands import session_files
from gput.tracking import Point, curves, to_mlflow, to_tensorboard
from shared.errors import BadRequest, Conflict, Unavailable


def _visit(number: int, holder: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"v_{number}", "holder": holder, "first_step": 2 * (number - 1), "steps": 2, "outcome": "closed", "index": number, "round": 1,
        "planned_at": 100.0 * number,
        "closed_at": 100.0 * number + 50, "validation_after": 3.0 - number, "durations": {"train": 1.5, "close": 0.5}, **more,
    }  # fmt: skip


PRIVACY = {"spent": 0.25, "planned": 1.0, "delta": 1e-5}
VIEW = {
    "id": "s_1", "phase": "COMPLETED", "backend": "EMULATED", "manifest_digest": "ab" * 32, "updated_at": 900.0, "step": 4,
    "holders": [{"holder": "north", "privacy": PRIVACY}, {"holder": "city", "privacy": None}],
}  # fmt: skip
VISITS = [
    _visit(1, "north"), _visit(2, "city"),
    _visit(3, "north", outcome="recalled", closed_at=None, validation_after=None, durations={}),
]  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"fact": "submitted", "at": 1.0}, {"fact": "last_checked", "position": 2, "validation_after": None, "at": 800.0},
]  # fmt: skip
LOSSES = [
    {"visit": "v_1", "holder": "north", "step": 1, "loss": 2.5}, {"visit": "v_1", "holder": "north", "step": 2, "loss": 2.25},
    {"visit": "v_2", "holder": "city", "step": 3, "loss": 2.0}, {"visit": "v_9", "holder": "", "step": 4, "loss": 1.0},
]  # fmt: skip


def test_curves_are_what_the_views_say() -> None:
    points = curves(VIEW, VISITS, LOSSES, EVENTS)
    assert [point for point in points if point.curve.startswith(("loss", "privacy"))] == [
        Point("loss/city", 3, 2.0, 250.0), Point("loss/held-out", 2, 2.0, 150.0), Point("loss/held-out", 4, 1.0, 250.0),
        Point("loss/north", 1, 2.5, 150.0), Point("loss/north", 2, 2.25, 150.0), Point("loss/tour", 4, 1.0, 900.0),
        Point("privacy/epsilon spent/north", 4, 0.25, 900.0),
    ]  # fmt: skip
    assert [point.value for point in points if point.curve == "visit_seconds/total"] == [2.0, 2.0]


def held_out(visits: list[dict[str, Any]], *events: dict[str, Any]) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in curves(VIEW, visits, (), events) if point.curve == "loss/held-out"]


def test_what_was_measured_after_a_collected_tour_stands_behind_all_its_steps() -> None:
    tours = [
        [
            _visit(3 * turn + n, name, first_step=6 * turn, validation_after=2.0 - turn)
            for n, name in enumerate("abc", 1)
        ]
        for turn in range(2)
    ]
    assert held_out([*tours[0], *tours[1]]) == [(6, 2.0), (12, 1.0)]


def test_accumulated_tours_are_measured_at_their_ends() -> None:
    visits = [_visit(n, "ab"[n % 2], round=(n + 1) // 2, validation_after=None) for n in range(1, 5)]
    judged = [
        {"fact": "tour_judged", "round": n, "stepped": n == 1, "validation_after": 3.0 - n, "at": 200.0 * n + 60}
        for n in (1, 2)
    ]
    last = {"fact": "last_checked", "position": 4, "validation_after": 0.5, "at": 900.0}
    assert held_out(visits, *judged, last) == [(4, 2.0), (8, 0.5)]


LATE = [_visit(n, name, validation_after=None) for n, name in enumerate("abc", 1)]
"""Of one round; the last holder joined late, when the others' tour was over."""
TWICE = [
    {"fact": "tour_judged", "round": 1, "stepped": True, "validation_after": loss, "at": at}
    for loss, at in ((3.0, 260.0), (2.5, 360.0))
]


def test_a_late_joiners_tour_is_measured_beside_the_one_before_it() -> None:
    assert held_out(LATE, *TWICE) == [(4, 3.0), (6, 2.5)]


def test_what_was_measured_after_visits_that_are_not_there_has_no_step() -> None:
    last = {"fact": "last_checked", "position": 3, "validation_after": 2.0, "at": 400.0}
    assert held_out([], *TWICE, last) == []


async def test_a_tour_that_ends_while_its_session_is_read_has_its_visits() -> None:
    """The lists grow between the askings: what is told of by an event has been by the time that visits are asked for."""
    client, told = Mock(), Mock(data=TWICE[0])
    grown: list[dict[str, Any]] = []

    async def events(session: str) -> AsyncIterator[Any]:
        grown.extend(LATE[:2])
        told.data = TWICE[0] | {"seq": 1}
        yield told

    async def items(path: str) -> list[Any]:
        return list(grown) if path.endswith("visits") else []

    client.events, client.items = events, items
    client.session = client.get = AsyncMock(return_value={**VIEW, "version": 1})
    found = curves(*await session_files.curves_of(client, "s_1"))
    assert [(point.step, point.value) for point in found if point.curve == "loss/held-out"] == [(4, 3.0)]


def test_the_seconds_of_each_visit_are_told_also_of_a_tour_that_begins_at_one_step() -> None:
    tour = [_visit(n, name, first_step=0, durations={"train": 1.0 * n}) for n, name in enumerate("abc", 1)]
    vain = _visit(2, "b", id="v_12", first_step=0, outcome="recalled", durations={"train": 9.0}, closed_at=None)
    points = curves(VIEW, [tour[0], vain, *tour[1:]], (), ())
    for name in ("train", "total"):
        told = [(point.step, point.value) for point in points if point.curve == f"visit_seconds/{name}"]
        assert told == [(2, 1.0), (2, 2.0), (2, 3.0)], "of the last attempt of each"


def test_what_was_made_again_after_a_restore_has_one_value() -> None:
    again = [_visit(1, "a", id="v_11", validation_after=7.0), _visit(2, "b", id="v_12", validation_after=6.0)]
    losses = [{"visit": f"v_{n}", "holder": "a", "step": 1, "loss": float(n)} for n in (1, 11)]
    points = curves(VIEW, [*VISITS, *again], losses, ())
    assert [(p.step, p.value) for p in points if p.curve == "loss/held-out"] == [(2, 7.0), (4, 6.0)]
    assert [p.value for p in points if p.curve == "loss/a"] == [11.0]


PASSED_OVER = [
    _visit(1, "a", first_step=0, steps=3), _visit(2, "b", first_step=3, steps=3, validation_after=9.0),
    _visit(3, "c", first_step=3, steps=3, validation_after=0.5, closed_at=600.0),
]  # fmt: skip
"""Stop 2 was taken back by a restore, and passed over when it came again; stop 3 began where it had begun."""
BACK = {"fact": "restored", "position": 1, "at": 500.0}


def test_what_a_restore_took_back_for_good_is_behind_no_measured_loss() -> None:
    assert held_out(PASSED_OVER, BACK) == [(3, 2.0), (6, 0.5)]
    early = {"fact": "last_checked", "position": 2, "validation_after": 7.0, "at": 400.0}
    assert held_out(PASSED_OVER[:2], early, BACK) == [(3, 2.0)]
    assert held_out(PASSED_OVER, BACK, early | {"position": 3, "at": 700.0}) == [(3, 2.0), (6, 7.0)]


def test_a_tour_that_a_restore_took_back_is_measured_when_it_ends_again() -> None:
    visits = [one | {"validation_after": None, "first_step": 3 * n} for n, one in enumerate(PASSED_OVER)]
    judged = {"fact": "tour_judged", "round": 1, "stepped": True, "validation_after": 4.0, "at": 400.0}
    assert held_out(visits[:2], judged) == [(6, 4.0)]
    assert held_out(visits[:2], judged, BACK) == []
    assert held_out(visits[:2], judged, BACK | {"position": 2}) == [(6, 4.0)]
    visits[2]["first_step"] = 3
    assert held_out(visits, judged, BACK, judged | {"validation_after": 3.0, "at": 700.0}) == [(6, 3.0)]


def _events(path: Path) -> list[Any]:
    """TensorBoard's records, each with its two checksums, read without the writer's code."""
    event = pytest.importorskip("tensorboardX.proto.event_pb2").Event
    crc = pytest.importorskip("tensorboardX.crc32c").crc32c
    data, found = path.read_bytes(), []

    def masked(piece: bytes) -> int:
        value = crc(piece)
        return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF

    while data:
        (length,), (check,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
        body, (tail,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert (check, tail) == (masked(data[:8]), masked(body))
        found.append(event.FromString(body))
        data = data[16 + length :]
    return found


def test_tensorboard_reads_them_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    points = curves(VIEW, VISITS, LOSSES, EVENTS)
    place = to_tensorboard(points, "s_1", tmp_path)
    [file] = place.glob("events.out.tfevents.*")
    read = [
        (value.tag, event.step, value.simple_value, event.wall_time) for event in _events(file) for value in event.summary.value
    ]  # fmt: skip
    assert sorted(read) == [(point.curve.replace(" ", "_"), point.step, point.value, point.at) for point in points]
    with pytest.raises(Conflict, match="already"):
        to_tensorboard(points, "s_1", tmp_path)


FULL = """
import resource, signal, sys
from pathlib import Path
from gput.tracking import Point, to_tensorboard
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
to_tensorboard([Point("loss", step, 1.0, 2.0) for step in range(3000)], "s_1", Path(sys.argv[1]))
"""


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    ended = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ("cannot write" in ended.stderr, list(tmp_path.iterdir())) == (True, []), ended.stderr


def test_a_run_that_mlflow_takes_half_of_is_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri, client = (tmp_path / "mlruns").as_uri(), mlflow.MlflowClient
    monkeypatch.setattr(client, "log_batch", lambda *_words, **_more: (_ for _ in ()).throw(RuntimeError("half")))
    with pytest.raises(RuntimeError, match="half"):
        to_mlflow(curves(VIEW, VISITS, LOSSES, EVENTS), VIEW, uri, "ours")
    known = client(tracking_uri=uri)
    [run] = known.search_runs([known.get_experiment_by_name("ours").experiment_id])
    assert (run.info.status, run.data.tags["gput.id"]) == ("FAILED", "s_1")


def test_mlflow_reads_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri, points = (tmp_path / "mlruns").as_uri(), curves(VIEW, VISITS, LOSSES, EVENTS)
    run = to_mlflow(points, VIEW, uri, "ours")
    client = mlflow.MlflowClient(tracking_uri=uri)
    told = client.get_run(run)
    assert (told.info.status, told.info.run_name, told.data.tags["gput.id"]) == ("FINISHED", "s_1", "s_1")
    read = [
        Point(each.key, each.step, each.value, each.timestamp / 1000)
        for curve in {point.curve for point in points} for each in client.get_metric_history(run, curve)
    ]  # fmt: skip
    assert sorted(read) == points
    again = to_mlflow(points, {**VIEW, "phase": "FAILED"}, uri, "ours")
    assert client.get_run(again).info.experiment_id == told.info.experiment_id
    assert client.get_run(again).info.status == "FAILED"


@pytest.mark.parametrize(("library", "act"), [
    ("tensorboardX", lambda folder: to_tensorboard([], "s_1", folder)),
    ("mlflow", lambda folder: to_mlflow([], VIEW, folder.as_uri(), "x")),
])  # fmt: skip
def test_without_the_extra_it_says_what_to_install(
    library: str, act: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(BadRequest, match="not installed") as told:
        act(tmp_path)
    assert "pip install" in str(told.value.remedy)


def test_an_mlflow_that_is_down_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it connects is said before, and what a password there is by nobody."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    asked: list[tuple[str | None, str | None]] = []
    requests = pytest.importorskip("requests")
    send = requests.Session.request

    def noting(*words: Any, **more: Any) -> Any:
        asked.append((os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES"), os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT")))
        return send(*words, **more)

    monkeypatch.setattr(requests.Session, "request", noting)
    monkeypatch.setattr(session_files, "with_session", lambda session, url, key, work: (VIEW, VISITS, LOSSES, EVENTS))
    words = ["session", "export-metrics", "s_1", "--url", "http://127.0.0.1:9", "--key", "k.pem"]
    assert main([*words, "--mlflow", "http://me:secret@127.0.0.1:9"]) == Unavailable.exit_code
    said = capsys.readouterr().err
    assert said.startswith("telling MLflow at http://127.0.0.1:9 …")
    assert ("[tracker-unreachable]" in said, "secret" in said) == (True, False)
    assert asked == [("1", "7")]  # ours where nobody said otherwise
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_what_mlflow_refuses_is_no_missing_server(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(BadRequest, match="//host") as told:
        to_mlflow([], VIEW, "nothing://me:secret@host/x", "ours")
    assert (told.value.code, "secret" in told.value.detail) == ("tracker-refused", False)


def test_the_command_asks_the_api_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(session_files, "with_session", lambda session, url, key, work: (VIEW, VISITS, LOSSES, EVENTS))
    words = ["session", "export-metrics", "s_1", "--url", "http://127.0.0.1:9", "--key", "k.pem"]
    assert main(words) == 2
    assert "[no-tracker]" in capsys.readouterr().err
    assert main([*words, "--tensorboard", str(tmp_path / "tb")]) == 0
    assert list((tmp_path / "tb" / "s_1").glob("events.out.tfevents.*"))
