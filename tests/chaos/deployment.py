"""The compose deployment as the chaos run handles it: up, down, break one container, mend it again. Knows Docker's command line only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tests.chaos.plan import Fault, Kind

ROOT = Path(__file__).parents[2]
ONCE = {"prepare", "client"}
"""Services that end by themselves."""


class Deployment:
    """One project of the compose file, under a name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._environment = {**os.environ, "COMPOSE_PROJECT_NAME": name, "GPUT_PORT": "0", "BUILDKIT_PROGRESS": "plain"}
        self._containers: dict[str, str] = {}
        self.networks: dict[str, list[str]] = {}

    def up(self) -> None:
        """Build, start, wait until everything is healthy, and learn what there is. Raises: RuntimeError."""
        self._compose("build", "--quiet")
        self._compose("up", "--wait", "--wait-timeout", "180")
        services = json.loads(self._compose("config", "--format", "json"))["services"]
        self.networks = {name: list(what["networks"]) for name, what in services.items() if name not in ONCE}
        self._containers = {name: self._compose("ps", "-q", name).strip() for name in self.networks}

    def down(self) -> None:
        """Remove everything of it, volumes too."""
        self._compose("down", "-v", "--timeout", "5")

    def client(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Submit the demo session and follow it to its verified end."""
        return subprocess.Popen(
            ["docker", "compose", "run", "--rm", "-T", "client"],
            cwd=ROOT,
            env=self._environment,
            stdout=log,
            stderr=log,
        )

    def words(self) -> str:
        """The last words of every service."""
        return self._compose("logs", "--no-color", "--tail", "60")

    def start(self, fault: Fault) -> Callable[[], None]:
        """Make it happen; what takes it back. Raises: RuntimeError: the engine could not."""
        container, network = self._containers[fault.target], f"{self.name}_{fault.network}"
        there: dict[Kind, tuple[list[str], list[str]]] = {
            Kind.KILL: (["kill", container], ["start", container]),
            Kind.PAUSE: (["pause", container], ["unpause", container]),
            Kind.CUT: (["network", "disconnect", network, container],
                       ["network", "connect", "--alias", fault.target, network, container]),
        }  # fmt: skip
        do, undo = there[fault.kind]

        def mend() -> None:
            self._run("docker", *undo)

        try:
            self._run("docker", *do)
        except RuntimeError:
            with contextlib.suppress(RuntimeError):  # half done is undone
                mend()
            raise
        return mend

    def _compose(self, *arguments: str) -> str:
        return self._run("docker", "compose", *arguments)

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=ROOT, env=self._environment, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.strip()[-2000:]}")
        return done.stdout
