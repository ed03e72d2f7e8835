"""One contestant measured: an undisturbed run, and one whose server is killed half-way. Knows contestants by their protocol only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.peers import traffic
from tests.peers.brood import Brood, until
from tests.peers.contestant import Contestant, State
from tests.peers.task import Task

ROOT = Path(__file__).parents[2]
PACE_S, SETTLE_S = 0.5, 10.0
MB = 1e6


@dataclass(frozen=True)
class Patience:
    """Seconds: for a whole job, and for one to end after its server was killed and started again."""

    job_s: float = 900.0
    killed_s: float = 120.0


@dataclass(frozen=True)
class Entry:
    """Who takes part: `enter` makes one in a brood's folder; `short`: visits of so many steps instead of the task's."""

    name: str
    title: str
    enter: Callable[[Brood, Task, Path], Contestant]
    environment: Callable[[Path], dict[str, str]]
    killed: bool = True
    short: int | None = None

    def task(self, task: Task) -> Task:
        """What it trains: the same steps over the same records, in visits of its own length."""
        return task if self.short is None else task.in_visits_of(self.short)


def run(entry: Entry, task: Task, folder: Path, patience: Patience) -> dict[str, float]:
    """Wall time, loss, bytes, memory of an undisturbed run, by figure.

    Raises:
        RuntimeError: it did not start, or did not finish.
    """
    material = material_of(task, folder.parent)
    brood, contestant = _stage(entry, task, folder, material)
    with brood:
        try:
            prepare_s = _timed(contestant.prepare)
            meter = traffic.Meter() if traffic.alone() else None
            began = time.monotonic()
            contestant.start()
            _finish(contestant, patience.job_s)
            model = contestant.model()
            wall_s = time.monotonic() - began
            memory = {"memory_mb": brood.peak.all_mb, "largest_mb": brood.peak.one_mb}
            own = contestant.counters()
            moved = {} if meter is None else _moved(meter, contestant.served)
        finally:
            contestant.close()
    found = losses(material, model)
    return rounded({"wall_s": wall_s, "prepare_s": prepare_s, **_means(found), **moved, **own, **memory})


def run_killed(entry: Entry, task: Task, folder: Path, patience: Patience) -> tuple[dict[str, float], str]:
    """The same with its server killed half-way and started again: figures, and how its own tool showed the job in the end.

    Raises:
        RuntimeError: it did not come as far as half-way.
    """
    material = material_of(task, folder.parent)
    brood, contestant = _stage(entry, task, folder, material)
    with brood:
        try:
            contestant.prepare()
            contestant.start()
            if not until(lambda: contestant.visits() >= task.half, patience.job_s, PACE_S):
                raise RuntimeError(f"{entry.name} did not train {task.half} visits within {patience.job_s:.0f} s")
            contestant.kill()
            killed = time.monotonic()
            contestant.restart()
            state = _settle(contestant, patience.killed_s)
            found = {"kill_finished": float(state is State.DONE)}
            if state is State.DONE:
                model = contestant.model()
                found["kill_s"] = time.monotonic() - killed
                found["kill_again"] = float(contestant.visits() - task.visits)
                found["kill_loss"] = _means(losses(material, model))["loss"]
            return rounded(found), contestant.word()
        finally:
            contestant.close()


def _stage(entry: Entry, task: Task, folder: Path, material: Path) -> tuple[Brood, Contestant]:
    folder.mkdir(parents=True)
    environment = {
        "PEERS_TASK": str(material), "PEERS_PROGRESS": str(folder / "progress"), "OMP_NUM_THREADS": "1",
        **entry.environment(folder),
    }  # fmt: skip
    brood = Brood(folder, environment)
    return brood, entry.enter(brood, task, material)


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _finish(contestant: Contestant, patience_s: float) -> None:
    until(lambda: contestant.state() is not State.RUNNING, patience_s, PACE_S)
    if contestant.state() is not State.DONE:
        raise RuntimeError(f"the job did not finish: {contestant.word()}")


def _settle(contestant: Contestant, patience_s: float) -> State:
    """What became of the job; RUNNING where it is neither done nor failed by then."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        pause = min(SETTLE_S, max(0.0, end - time.monotonic()))
        until(lambda: contestant.state() is not State.RUNNING, pause, PACE_S)
        if (found := contestant.settled()) is not State.RUNNING:
            return found
    return contestant.settled()


def _moved(meter: traffic.Meter, served: tuple[traffic.End, ...]) -> dict[str, float]:
    meter.close()
    if meter.missed:
        raise RuntimeError(f"{meter.missed} packets were not counted")
    return {"moved_mb": (meter.at(*served) if served else meter.all_bytes) / MB, "loopback_mb": meter.all_bytes / MB}


def _means(found: list[float]) -> dict[str, float]:
    return {"loss": sum(found) / len(found), "worst_loss": max(found)}


def rounded(found: dict[str, float]) -> dict[str, float]:
    """To what counts: a loss to four decimals, everything else to three."""
    return {name: round(value, 4 if name.endswith("loss") else 3) for name, value in found.items()}


def material_of(task: Task, folder: Path) -> Path:
    """Records, program and starting weights of a task in a folder of their own, made once."""
    place = folder / f"material-{task.rounds}-{task.steps}-{task.seed}"
    if not (place / "start.pt").exists():
        from tests.peers.task import write

        write(task, place)
        archive = place / "program.gput"
        options = [f"--option={name}={value}" for name, value in task.options.items()]
        _python("-m", "gput", "program", "build", "gpt2", "-o", str(archive), *options)
        _python("-m", "tests.peers.tensors", "start", str(archive), str(place))
    return place


def losses(material: Path, model: Path) -> list[float]:
    """Of each holder's held-out records, by one judge for everybody."""
    found: list[float] = json.loads(_python("-m", "tests.peers.tensors", "loss", str(material), str(model)))
    return found


def _python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"python {' '.join(words[:3])}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
