"""A session's curves come back out of TensorBoard's and MLflow's own files, or it is said why they did not go in."""

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
from shared.service.event_reader import Event as PlainEvent
from tests.gput.test_curves import EVENTS, LOSSES, VIEW, VISITS


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


async def test_losses_among_the_events_of_a_running_session_are_taken_from_their_own_list() -> None:
    """They say no time."""
    told = [PlainEvent(1, "loss", {"step": 1, "loss": 2.0}), PlainEvent(2, "visit", {"seq": 3, "at": 1.0})]

    async def events(_session: str) -> AsyncIterator[PlainEvent]:
        for event in told:
            yield event

    client = Mock(
        events=events, session=AsyncMock(return_value={**VIEW, "version": 3}), items=AsyncMock(return_value=[])
    )
    assert (await session_files.measured(client, "s_1"))[-1] == [{"seq": 3, "at": 1.0}]
