"""A session's curves for the tools that training people use: TensorBoard and MLflow. Knows the API's views, and no service.

Only what the caller may see is in the views (the release rule), so nothing else can be exported.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gput.files import written
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
    view: Mapping[str, Any],
    visits: Sequence[Mapping[str, Any]],
    losses: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
) -> list[Point]:
    """Losses by holder and step, held-out loss, seconds of each visit by step, and privacy spent; ordered by curve, then step.

    What a restore took back has no losses. What was made again after it has one value, the last: of losses one a step, of seconds one a
    visit, of which those of a collected tour are at one step.

    Args:
        view, visits, losses, events: answers of `/v1/sessions/{session}` and below, in their order.
    """
    ended = {visit["id"]: visit["closed_at"] or visit["planned_at"] for visit in visits}
    now, (visits, events) = view["updated_at"], _placed(visits, list(events))
    gone = _taken_back(visits, events)
    points = [
        Point(f"loss/{each['holder'] or 'tour'}", each["step"], each["loss"], ended.get(each["visit"], now))
        for each in losses
        if each["visit"] not in gone
    ]
    points += _held_out(visits, events, ended)
    points = [*{(point.curve, point.step): point for point in points}.values(), *_seconds(visits, ended)]
    for holder in view["holders"]:
        if holder["privacy"] is not None:
            points.append(
                Point(f"privacy/epsilon spent/{holder['holder']}", view["step"], holder["privacy"]["spent"], now)
            )
    return sorted(points)


def _placed(
    visits: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Both with `place`: what came before what in the session's journal, which no clock that is put back changes.

    A visit's is that of its close; where that is not among the events, its time says before which of them it was.
    """
    closes = {event["visit"]: n for n, event in enumerate(events) if event.get("fact") == "closed" and "visit" in event}
    times = list(accumulate((event["at"] for event in events), max))

    def place(visit: Mapping[str, Any]) -> int | None:
        at = visit["closed_at"]
        return None if at is None else closes.get(visit["id"], bisect_left(times, at))

    return [{**visit, "place": place(visit)} for visit in visits], [{**one, "place": n} for n, one in enumerate(events)]


def _taken_back(visits: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> set[str]:
    """Closed visits that a restore took back: where they were passed over then, another holder's made their steps."""
    closed = [visit for visit in visits if visit["outcome"] == "closed"]
    stood = _standing(closed, events)[0].values()
    return {visit["id"] for visit in closed} - {visit["id"] for visit in stood}


def _seconds(visits: Iterable[Mapping[str, Any]], ended: Mapping[str, float]) -> Iterator[Point]:
    for visit in {visit["index"]: visit for visit in visits if visit["durations"]}.values():
        step, at = visit["first_step"] + visit["steps"], ended[visit["id"]]
        for name, seconds in visit["durations"].items():
            yield Point(f"visit_seconds/{name}", step, seconds, at)
        yield Point("visit_seconds/total", step, sum(visit["durations"].values()), at)


def _held_out(
    visits: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]], ended: Mapping[str, float]
) -> Iterator[Point]:
    """Of visits; of tours, whose visits begin at one step and are trained on together; of accumulated tours; of the model at the end."""
    closed, events = _standing([visit for visit in visits if visit["outcome"] == "closed"], list(events))
    steps = Counter[int]()
    for visit in closed.values():
        steps[visit["first_step"]] += visit["steps"]
    judged = _of_tours(closed.values())
    ends = {index: visit["first_step"] + steps[visit["first_step"]] for index, visit in closed.items()}
    for index, visit in closed.items():
        if visit["validation_after"] is not None:
            yield Point("loss/held-out", ends[index], visit["validation_after"], ended[visit["id"]])
    for event in events:
        measured, fact = event.get("validation_after"), event.get("fact")
        # An orchestrator of the release before does not say whether a tour made its step: what may be of a rolled-back model is left out.
        if measured is None or not (fact == "last_checked" or (fact == "tour_judged" and event.get("stepped"))):
            continue
        of = [n for n in closed if n <= event["position"]] if fact == "last_checked" else [
            visit["index"] for visit in judged(event)
        ]  # fmt: skip
        if of:  # else its visits are not among those that came: nobody knows at which step it stands
            yield Point("loss/held-out", ends[max(of)], measured, event["at"])


def _of_tours(visits: Iterable[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Of these visits those whose step a `tour_judged` is about: who joins a round late is in a later step of it.

    It is asked for each of very many tours, so each looks at its round's visits alone.
    """
    by_round = defaultdict[int, list[Mapping[str, Any]]](list)
    for visit in visits:
        by_round[visit["round"]].append(visit)
    return lambda event: [visit for visit in by_round.get(event["round"], ()) if visit["place"] <= event["place"]]


def _standing(
    closed: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The visits, by stop, and the events that no later restore took back: its steps are behind nothing that was measured since."""
    judged = _of_tours(closed)
    restores = [
        (one["place"], one["position"]) for one in events if one.get("fact") == "restored" and "position" in one
    ]

    def stands(stop: int, place: int, until: float = math.inf) -> bool:
        return all(stop <= position for back, position in restores if place <= back <= until)

    def behind(event: Mapping[str, Any]) -> int:
        if event.get("fact") != "tour_judged":
            return int(event.get("position") or 0)
        return max((
            visit["index"] for visit in judged(event) if stands(visit["index"], visit["place"], event["place"])
        ), default=0)  # fmt: skip

    standing = [visit for visit in closed if stands(visit["index"], visit["place"])]
    stood = {visit["index"]: visit for visit in standing}  # the last attempt of each
    return stood, [event for event in events if stands(behind(event), event["place"])]


def to_tensorboard(points: Iterable[Point], session: str, folder: Path) -> Path:
    """An event file in a folder of the session's own under `folder`, which is there; that folder.

    Raises:
        BadRequest: code `no-tracker`: tensorboardX is not installed; `cannot-write`: nothing is there then.
        Conflict: code `curves-exist`: the session is there already.
    """
    try:
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto.event_pb2 import Event
    except ImportError:
        raise _absent("tensorboardX", "tensorboard") from None
    place = folder / session
    if place.exists() and any(place.glob("events.out.tfevents.*")):
        raise Conflict(
            f"{place} has this session's curves already", code="curves-exist",
            remedy="Name another folder, or remove that one: a second file would draw every curve twice.",
        )  # fmt: skip
    # tensorboardX's own writer writes in a thread; where the disk is full that ends, and whoever closes the writer waits for ever.
    with written(place), TemporaryDirectory(prefix=".gput-", dir=folder) as draft:
        writer = event_file_writer.EventsWriter(str(Path(draft) / "events"))
        for point in points:
            value = summary.scalar(point.curve, point.value)
            writer.write_event(Event(summary=value, step=point.step, wall_time=point.at))
        writer.close()
        (file,) = Path(draft).iterdir()
        place.mkdir(exist_ok=True)
        file.replace(place / file.name)
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
    from mlflow.entities import Metric

    found = client.get_experiment_by_name(experiment)
    tags = {f"gput.{name}": str(view[name]) for name in ("id", "manifest_digest", "phase", "backend") if name in view}
    home = found.experiment_id if found is not None else client.create_experiment(experiment)
    run = client.create_run(home, run_name=view["id"], tags=tags).info.run_id
    metrics = [Metric(point.curve, point.value, int(point.at * 1000), point.step) for point in points]
    try:
        for begin in range(0, len(metrics), MLFLOW_BATCH):
            client.log_batch(run, metrics=metrics[begin : begin + MLFLOW_BATCH])
    except BaseException:
        with suppress(Exception):  # what is the matter is told already
            client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(
        run, "FINISHED" if view["phase"] == "COMPLETED" else "KILLED" if view["phase"] == "CANCELLED" else "FAILED"
    )
    return str(run)


def _absent(library: str, extra: str) -> BadRequest:
    return BadRequest(
        f"{library} is not installed", code="no-tracker", remedy=f"Install the extra: {installing(extra)}."
    )
