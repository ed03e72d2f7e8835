"""A session's curves for the tools that training people use: TensorBoard and MLflow. Knows the API's views, and no service.

Only what the caller may see is in the views (the release rule), so nothing else can be exported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import BadRequest, Conflict, Unavailable, installing

if TYPE_CHECKING:
    from mlflow import MlflowClient

MLFLOW_BATCH = 1000
"""Metrics that MLflow takes at once."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""For a server that does not answer, by MLflow's own variables: once more, and seconds for each try."""


@dataclass(frozen=True, order=True)
class Point:
    """One value of one curve. `step`: training steps behind it; `at`: seconds since 1970."""

    curve: str
    step: int
    value: float
    at: float


def curves(
    view: Mapping[str, Any], visits: Iterable[Mapping[str, Any]], losses: Iterable[Mapping[str, Any]]
) -> list[Point]:
    """Losses by holder and step, held-out loss, seconds of each visit by step, and privacy spent; ordered by curve, then step.

    Args:
        view, visits, losses: answers of `/v1/sessions/{session}` and below.
    """
    ended = {visit["id"]: visit["closed_at"] or visit["planned_at"] for visit in visits}
    now = view["updated_at"]
    points = [
        Point(f"loss/{each['holder'] or 'tour'}", each["step"], each["loss"], ended.get(each["visit"], now))
        for each in losses
    ]
    for visit in visits:
        step, at = visit["first_step"] + visit["steps"], ended[visit["id"]]
        if visit["outcome"] == "closed" and visit["validation_after"] is not None:
            points.append(Point("loss/held-out", step, visit["validation_after"], at))
        for name, seconds in visit["durations"].items():
            points.append(Point(f"visit_seconds/{name}", step, seconds, at))
        if visit["durations"]:
            points.append(Point("visit_seconds/total", step, sum(visit["durations"].values()), at))
    for holder in view["holders"]:
        if holder["privacy"] is not None:
            points.append(
                Point(f"privacy/epsilon spent/{holder['holder']}", view["step"], holder["privacy"]["spent"], now)
            )
    return sorted(points)


def to_tensorboard(points: Iterable[Point], session: str, folder: Path) -> Path:
    """An event file in a folder of the session's own under `folder`; that folder.

    Raises:
        BadRequest: code `no-tracker`: tensorboardX is not installed. Conflict: code `curves-exist`: the session is there already.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise _absent("tensorboardX", "tensorboard") from None
    place = folder / session
    if place.exists() and any(place.glob("events.out.tfevents.*")):
        raise Conflict(
            f"{place} has this session's curves already", code="curves-exist",
            remedy="Name another folder, or remove that one: a second file would draw every curve twice.",
        )  # fmt: skip
    with SummaryWriter(str(place)) as writer:
        for point in points:
            writer.add_scalar(point.curve, point.value, point.step, walltime=point.at)
    return place


def to_mlflow(points: Iterable[Point], view: Mapping[str, Any], uri: str, experiment: str) -> str:
    """A finished run of the experiment, with the session's id, manifest and phase as tags; its id.

    Raises:
        BadRequest: code `no-tracker`: MLflow is not installed; `tracker-refused`: it does not take the address, or the run.
        Unavailable: code `tracker-unreachable`: its server does not answer.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise _absent("MLflow", "mlflow") from None
    try:
        with _soon():
            return _finished_run(MlflowClient(tracking_uri=uri), points, view, experiment)
    except MlflowException as error:
        if isinstance(error.__context__, OSError):  # of requests: no connection, no answer in time, or nothing but 5xx
            raise Unavailable(
                f"MLflow at {shown(uri)} does not answer", code="tracker-unreachable",
                remedy="Check --mlflow, and that its server runs.",
            ) from None  # fmt: skip
        first = shown(str(error)).partition("\n")[0][:300]
        raise BadRequest(
            f"MLflow at {shown(uri)} refused: {first}", code="tracker-refused", remedy="Check --mlflow."
        ) from None


def shown(address: str) -> str:
    """An address, or words with addresses, as they may be shown: without the name and password that one may begin with."""
    return re.sub(r"//[^/\s]*@", "//", address)


@contextmanager
def _soon() -> Iterator[None]:
    """By itself MLflow asks a server that is down for four minutes. Whoever set these variables has said how long."""
    added = {name: value for name, value in PATIENCE.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _finished_run(client: MlflowClient, points: Iterable[Point], view: Mapping[str, Any], experiment: str) -> str:
    from mlflow.entities import Metric, RunTag

    found = client.get_experiment_by_name(experiment)
    tags = [
        RunTag(f"gput.{name}", str(view[name]))
        for name in ("id", "manifest_digest", "phase", "backend")
        if name in view
    ]
    home = found.experiment_id if found is not None else client.create_experiment(experiment)
    run = client.create_run(home, run_name=view["id"]).info.run_id
    metrics = [Metric(point.curve, point.value, int(point.at * 1000), point.step) for point in points]
    for begin in range(0, len(metrics), MLFLOW_BATCH):
        client.log_batch(run, metrics=metrics[begin : begin + MLFLOW_BATCH])
    client.log_batch(run, tags=tags)
    client.set_terminated(
        run, "FINISHED" if view["phase"] == "COMPLETED" else "KILLED" if view["phase"] == "CANCELLED" else "FAILED"
    )
    return str(run)


def _absent(library: str, extra: str) -> BadRequest:
    return BadRequest(
        f"{library} is not installed", code="no-tracker", remedy=f"Install the extra: {installing(extra)}."
    )
