"""Checks the specification with spin: the laws within bounds in every mode, progress, and that each defence is needed. Knows no product.

    python -m docs.spec.check            everything (minutes)
    python -m docs.spec.check --quick    one small configuration per mode and of collected tours, and two defences of each model

Needs `spin` and a C compiler on the path (Debian: spin, gcc). Exit code 1: a law is broken, or a defence was taken away and nothing broke.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MODES = ("PAPER", "SCOPED", "DIRECT")
BOUNDS = ("VISITS", "CRASHES", "RESTARTS", "RESETS", "TIMEOUTS", "EVIL", "REPLAYS")
TOUR_BOUNDS = ("ROUNDS", "CRASHES", "RESETS", "TIMEOUTS", "VETOES", "EVIL", "DROPPED")
MEMORY_MB = 6000
TOURS = "TOURS"
"""In the place of a travel mode: collected tours, which have a model of their own."""


@dataclass(frozen=True)
class Case:
    """One run of spin. `without`: the defence that is taken away, for which the run must fail."""

    mode: str
    bounds: tuple[int, ...]
    progress: bool = False
    without: str = ""

    @property
    def model(self) -> str:
        return "tours.pml" if self.mode == TOURS else "travel.pml"

    @property
    def named(self) -> dict[str, int]:
        """Its bounds by name."""
        return dict(zip(TOUR_BOUNDS if self.mode == TOURS else BOUNDS, self.bounds, strict=True))

    def __str__(self) -> str:
        what = "progress" if self.progress else "laws"
        told = " ".join(f"{name.lower()}={n}" for name, n in self.named.items() if n)
        return f"{self.mode:6} {what:8} {told}" + (f" without {self.without.lower()}" if self.without else "")


@dataclass(frozen=True)
class Outcome:
    """What spin found: `errors` it counted, states it stored, transitions it took, whether the search was complete."""

    errors: int
    states: int
    transitions: int
    complete: bool
    first: str


#       visits crashes restarts resets timeouts evil replays
LAWS = (
    (2, 2, 0, 0, 0, 0, 1),
    (2, 1, 0, 1, 0, 0, 0),
    (2, 0, 1, 0, 1, 2, 0),
    (2, 1, 0, 0, 0, 1, 1),
    (3, 1, 0, 0, 0, 1, 0),
)
PROGRESS = ((2, 1, 0, 0, 0, 0, 0), (2, 0, 1, 0, 1, 0, 0), (2, 0, 0, 1, 0, 0, 0), (2, 0, 0, 0, 0, 1, 0))
DEFENCES = {
    "WITHOUT_KEY_ERASURE": ("SCOPED", (2, 0, 0, 0, 0, 2, 0)),
    "WITHOUT_SCRUB": ("SCOPED", (2, 0, 0, 0, 0, 0, 0)),
    "WITHOUT_FENCE_FIRST": ("SCOPED", (2, 0, 0, 0, 0, 0, 0)),
    "WITHOUT_VERIFY": ("PAPER", (2, 0, 0, 0, 0, 1, 0)),
    "WITHOUT_FRAME_NUMBERS": ("SCOPED", (2, 0, 0, 0, 0, 0, 1)),
    "WITHOUT_COMMIT_BEFORE_ACT": ("SCOPED", (2, 1, 0, 0, 0, 0, 0)),
    "WITHOUT_HIGHEST_EPOCH": ("SCOPED", (2, 0, 0, 0, 0, 1, 0)),
    "WITHOUT_CLEAN_BEFORE_INSTALL": ("SCOPED", (2, 0, 0, 0, 0, 0, 0)),
}


#       rounds crashes resets timeouts vetoes evil dropped
TOUR_LAWS = ((2, 1, 0, 1, 0, 2, 0), (2, 1, 1, 0, 1, 0, 0), (2, 0, 1, 1, 1, 1, 1), (3, 2, 0, 0, 1, 1, 1))
TOUR_PROGRESS = ((2, 1, 0, 0, 0, 0, 0), (2, 0, 1, 0, 0, 0, 0), (2, 0, 0, 1, 1, 0, 1))
TOUR_DEFENCES = {
    "WITHOUT_KEY_ERASURE": (2, 0, 0, 0, 0, 0, 0),
    "WITHOUT_EVERY_SCRUB": (2, 0, 0, 0, 0, 0, 0),
    "WITHOUT_LETTING_GO": (2, 1, 0, 0, 0, 0, 0),
    "WITHOUT_VETOED_LET_GO": (2, 0, 0, 0, 1, 0, 0),
    "WITHOUT_LOOKING_AGAIN": (2, 0, 0, 1, 1, 0, 0),
    "WITHOUT_COMMIT_BEFORE_ACT": (2, 1, 0, 0, 0, 0, 0),
}


def cases(quick: bool) -> Iterator[Case]:
    """All runs, in order."""
    for mode in MODES:
        yield from (Case(mode, bounds) for bounds in (LAWS[1:2] if quick else LAWS))
        if not quick:
            yield from (Case(mode, bounds, progress=True) for bounds in PROGRESS)
    needed = list(DEFENCES.items())
    for without, (mode, bounds) in needed[1:3] if quick else needed:
        yield Case(mode, bounds, without=without)
    yield from (Case(TOURS, bounds) for bounds in (TOUR_LAWS[:1] if quick else TOUR_LAWS))
    if not quick:
        yield from (Case(TOURS, bounds, progress=True) for bounds in TOUR_PROGRESS)
    tours = list(TOUR_DEFENCES.items())
    for without, bounds in tours[:2] if quick else tours:
        yield Case(TOURS, bounds, without=without)


def run(case: Case, folder: Path) -> Outcome:
    """Generate, compile and run the verifier of one case. Raises: RuntimeError: spin or the compiler failed."""
    for source in (case.model, "tables.pml"):
        shutil.copy(HERE / source, folder)
    defined = [f"-D{name}={n}" for name, n in case.named.items()]
    if case.mode != TOURS:
        defined.append(f"-DMODE={MODES.index(case.mode)}")
    if case.without:
        defined.append(f"-D{case.without}")
    _do(["spin", "-a", *defined, case.model], folder)
    kind = ["-DNFAIR=3"] if case.progress else ["-DSAFETY", "-DNOCLAIM"]
    _do(
        ["gcc", "-O2", "-w", "-DVECTORSZ=2048", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}", *kind, "-o", "pan", "pan.c"],
        folder,
    )
    flags = ["-a", "-f"] if case.progress else []
    return _read(_do(["./pan", "-m2000000", *flags], folder))


def _do(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def _read(text: str) -> Outcome:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else -1

    first = next((line.removeprefix("pan:1: ") for line in text.splitlines() if line.startswith("pan:1:")), "")
    whole = "Search not completed" not in text and "max search depth too small" not in text
    return Outcome(
        number(r"errors: (\d+)"), number(r"(\d+) states, stored"), number(r"(\d+) transitions"), whole, first
    )


def main() -> int:
    """Run, print one line per case, and the sum."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(
            f"spec: {' and '.join(missing)} not found. Install it (Debian: apt-get install spin gcc).", file=sys.stderr
        )
        return 2
    wrong, states = 0, 0
    for case in cases("--quick" in sys.argv[1:]):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gput-spec-") as folder:
            outcome = run(case, Path(folder))
        good = outcome.errors > 0 if case.without else outcome.errors == 0 and outcome.complete
        wrong += not good
        states += 0 if case.without else outcome.states
        verdict = "ok" if good else "BROKEN"
        told = (
            f"breaks: {outcome.first}"
            if outcome.errors
            else f"{outcome.states:,} states, {outcome.transitions:,} transitions"
        )
        print(f"{verdict:6} {case}: {told} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{states:,} states explored; {wrong} of the checks failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
