"""Breaks a whole deployment again and again while it trains, and demands a complete, verified session at the end.

    python -m tests.chaos [--seed N] [--seconds S]        (`make chaos` runs it; needs Docker with compose)

Containers are killed, paused and cut from networks, as drawn from the seed; the same seed gives the same plan. Knows no service.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.deployment import Deployment
from tests.chaos.plan import Fault, plan

PATIENCE_S = 900.0
"""How long the session may take after the last fault was taken back."""
SUBMITTED, VERIFIED = " at http://orchestrator", "receipts verified"
"""What the client says."""
LAST_LINES = 30


def main(argv: list[str]) -> int:
    """Exit code: 0 only with a complete session whose receipts verify."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="of the plan; default: a new one, which is printed")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long faults begin (default 120)")
    options = parser.parse_args(argv)
    if shutil.which("docker") is None:
        print("error: docker is not here. Chaos breaks real containers: install Docker with compose.", file=sys.stderr)
        return 2
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    print(f"seed {seed}, faults for {options.seconds:.0f} s; once more: make chaos SEED={seed}", flush=True)
    deployment = Deployment(f"gput-chaos-{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="gput-chaos-") as folder:
        log = Path(folder) / "client.log"
        try:
            deployment.up()
            return _session(deployment, plan(seed, options.seconds, deployment.networks), log)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        finally:
            deployment.down()


def _session(deployment: Deployment, faults: list[Fault], log: Path) -> int:
    with log.open("wb") as words:
        client = deployment.client(words)
        try:
            _submitted(client, log)
            begun = time.monotonic()
            done = _break(deployment, faults, client)
            code = client.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if client.poll() is None:
                client.terminate()
                client.wait()
    said = log.read_text(errors="replace")
    good = code == 0 and VERIFIED in said
    if not good:
        print(deployment.words(), said, sep="\n", file=sys.stderr)
    print(
        "\n".join(said.splitlines()[-LAST_LINES:])
        if good
        else f"the session did NOT end well (client's exit code {code})"
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(fault.kind for fault in done).items()))
    end = "complete and verified" if good else "LOST"
    print(f"chaos: {len(done)} faults ({kinds or 'none'}) in {time.monotonic() - begun:.0f} s; session {end}")
    return 0 if good else 1


def _submitted(client: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the session is there: what is broken before is only a submission to be repeated."""
    while SUBMITTED not in log.read_text(errors="replace") and client.poll() is None:
        time.sleep(0.2)


def _break(deployment: Deployment, faults: list[Fault], client: subprocess.Popen[bytes]) -> list[Fault]:
    """Every fault at its time, until the session has ended; whatever was broken is mended before this returns."""
    begun, happened = time.monotonic(), list[Fault]()
    broken: list[tuple[float, Fault, Callable[[], None]]] = []
    waiting = list(faults)
    try:
        while waiting or broken:
            broken.sort(key=lambda entry: entry[0])
            at = min([fault.at_s for fault in waiting[:1]] + [back for back, _, _ in broken[:1]])
            if not _until(begun + at, client):
                waiting.clear()
            if broken and broken[0][0] <= at:
                _, fault, mend = broken.pop(0)
                mend()
                print(f"{time.monotonic() - begun:7.1f} s  back: {fault.target} ({fault.kind})", flush=True)
            elif waiting:
                fault = waiting.pop(0)
                try:
                    broken.append((fault.back_s, fault, deployment.start(fault)))
                except RuntimeError as error:  # an engine under load cannot always freeze a container: the others go on
                    print(f"{time.monotonic() - begun:7.1f} s  not possible: {fault} ({str(error).splitlines()[-1]})")
                    continue
                happened.append(fault)
                print(f"{time.monotonic() - begun:7.1f} s  {fault}", flush=True)
    finally:
        for _, _, mend in broken:
            mend()
    return happened


def _until(moment: float, client: subprocess.Popen[bytes]) -> bool:
    """Waits for the moment; False at once when the client has ended."""
    try:
        client.wait(max(0.0, moment - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
