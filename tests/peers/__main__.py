"""Flower, NVIDIA FLARE and this repository at the same training, measured the same way: `make bench-peers` (Linux).

    python -m tests.peers [--only NAME …] [--rounds N] [--steps N] [--runs N] [--save FILE]

Each runs alone, all its parties as processes of this machine. Ends every process that it started, however it ends.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from gput.commands.keeping import Keeping
from gput.output import Format, emit, say
from tests.peers import measure, table, traffic
from tests.peers.brood import Brood, adopt_orphans, end_all
from tests.peers.flare import Flare
from tests.peers.flower import Flower
from tests.peers.ours import Ours
from tests.peers.task import Task

INTERRUPTED = 130
PACKAGES = {"flower": "flwr", "flare": "nvflare"}


def entries(peers: Path, short: int) -> tuple[measure.Entry, ...]:
    """Everybody, in the order in which they run. `peers`: the folder of their environments."""
    flower, flare = peers / "flower" / "bin", peers / "flare" / "bin"

    def flare_environment(folder: Path) -> dict[str, str]:
        return Flare.environment(folder, flare)

    def flower_environment(folder: Path) -> dict[str, str]:
        return Flower.environment(folder, flower)

    def ours(brood: Brood, task: Task, material: Path) -> Ours:
        return Ours(brood.folder, task, material)

    def mixed(brood: Brood, task: Task, material: Path) -> Ours:
        return Ours(brood.folder, task, material, "tour")

    return (
        measure.Entry("ours", "the GPU travels, visits as long as their rounds", ours, lambda folder: {}),
        measure.Entry("ours-tour", "the GPU travels, and trains on each round's mixture", mixed, lambda folder: {}),
        measure.Entry("ours-short", f"the GPU travels, visits of {short} steps", ours, lambda folder: {}, False, short),
        measure.Entry("flower", "Flower, FedAvg", lambda b, t, m: Flower(b, t, flower), flower_environment),
        measure.Entry("flare", "FLARE, FedAvg", lambda b, t, m: Flare(b, t, flare, "fedavg"), flare_environment),
        measure.Entry(
            "flare-cyclic", "FLARE, cyclic", lambda b, t, m: Flare(b, t, flare, "cyclic"), flare_environment, False
        ),
    )


def main(argv: list[str]) -> int:
    """Exit code: 0 where all that were asked for were measured."""
    options = _options(argv)
    missing = [name for name in options.only if (one := name.partition("-")[0]) in PACKAGES
               and installed(options.peers / one, PACKAGES[one]) is None]  # fmt: skip
    if missing:
        say(f"error: {', '.join(missing)}: not installed in {options.peers}; `make bench-peers` does that")
        return 2
    traffic.enter(["-m", "tests.peers", *argv])
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it, too, ends what was started
    logging.disable(logging.WARNING)
    if traffic.alone():
        traffic.up()
    else:
        say("bytes are not measured: `unshare -rn` gives no network namespace here")
    folder = Path(tempfile.mkdtemp(prefix="gput-peers-", dir=options.folder))
    try:
        good = _all(options, folder)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    finally:
        end_all()
    if good and not options.keep:
        shutil.rmtree(folder)
    else:
        say(f"logs: {folder}")
    return 0 if good else 1


def _all(options: argparse.Namespace, folder: Path) -> bool:
    task = Task(rounds=options.rounds, steps=options.steps)
    chosen = [one for one in entries(options.peers, options.short) if one.name in options.only]
    keeping = Keeping("peers", {
        "rounds": task.rounds, "steps": task.steps, "batch": task.batch, "holders": task.holders, "short": options.short,
        **{package: installed(options.peers / name, package) for name, package in PACKAGES.items()},
    }, options.save)  # fmt: skip
    runs: list[dict[str, float]] = []
    words: dict[str, str] = {}
    good = True
    try:
        for number in range(options.runs):
            runs.append({})
            for entry in chosen:
                good &= _one(entry, task, folder / f"run-{number}", options, runs[-1], words)
            _show(chosen, runs[-1], words)
    finally:
        if found := [one for one in runs if one]:  # an hour's figures are not lost to what ends the run
            keeping.keep(found, {f"{name}.after-kill": word for name, word in words.items()})
    return good


def installed(environment: Path, package: str) -> str | None:
    """The version that an environment has of a package, None where it has none."""
    found = [*environment.glob(f"lib/python*/site-packages/{package}-*.dist-info")]
    return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else None


def _one(
    entry: measure.Entry, task: Task, folder: Path, options: argparse.Namespace, found: dict[str, float], words: dict[str, str]
) -> bool:  # fmt: skip
    """Add its figures; False where it failed: the others' are not lost to that."""
    patience, own = measure.Patience(killed_s=options.patience), entry.task(task)
    try:
        say(f"{entry.name} ({entry.title}) …")
        _add(found, entry.name, measure.run(entry, own, folder / entry.name, patience))
        if entry.killed and options.kill:
            say(f"{entry.name}: its server is killed half-way …")
            figures, words[entry.name] = measure.run_killed(entry, own, folder / f"{entry.name}-killed", patience)
            _add(found, entry.name, figures)
    except Exception as error:
        say(f"error: {entry.name}: {error}")
        (folder / f"{entry.name}.error").write_text(traceback.format_exc())
        return False
    return True


def _add(found: dict[str, float], name: str, figures: Mapping[str, float]) -> None:
    say(f"{name}: " + ", ".join(f"{figure} {value:g}" for figure, value in figures.items()))
    found.update({f"{name}.{figure}": value for figure, value in figures.items()})


def _show(chosen: list[measure.Entry], found: Mapping[str, float], words: Mapping[str, str]) -> None:
    names = [entry.name for entry in chosen]
    emit(table.rows(names, found, words), table.COLUMNS, Format.TABLE)
    others = [name for name in names if not name.startswith("ours")]
    for name in names:
        if name not in others:
            for line in table.standing(name, others, found):
                say(line)


def _options(argv: list[str]) -> argparse.Namespace:
    plain = Task()
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [one.name for one in entries(Path(), 1)]
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="folder of the peers' environments")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=plain.rounds, help=f"default {plain.rounds}")
    parser.add_argument(
        "--steps", type=int, default=plain.steps, help=f"of each holder in a round, default {plain.steps}"
    )
    parser.add_argument("--short", type=int, default=5, help="steps of a short visit of ours, default 5")
    parser.add_argument("--runs", type=int, default=1, help="do it so often, default once")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after a kill, default 120")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="leave the kill test out")
    parser.add_argument("--save", type=Path, help="also write the result to this file, for `gput bench compare`")
    parser.add_argument("--keep", action="store_true", help="keep all files and logs")
    parser.add_argument("--folder", type=Path, help="where to work; default: the system's temporary folder")
    options = parser.parse_args(argv)
    options.peers = options.peers.absolute()
    return options


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(measure.ROOT)
    raise SystemExit(main(sys.argv[1:]))
