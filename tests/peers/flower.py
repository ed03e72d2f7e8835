"""Flower as a contestant: a SuperLink with its database, a SuperNode for each holder, FedAvg. Knows its command line only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.peers.brood import Brood, kill_tree, listens, until
from tests.peers.contestant import State, lines, plain
from tests.peers.task import Task
from tests.peers.traffic import End, alone

PORT, NODE_PORT = 8000, 9100
NODES_SEE = "127.0.0.2" if alone() else "127.0.0.1"
"""Its server app asks at the same port as the nodes; where nothing else can, these go to another address, to be told apart."""
PATIENCE_S = 120.0
THEIRS = Path(__file__).parent / "theirs"
CONNECTION = f"""[superlink]
default = "peer"
[superlink.peer]
address = "127.0.0.1:{PORT}"
insecure = true
"""


class Flower:
    """One run. Without TLS and node authentication, which are off in its quick start and would cost it.

    Args:
        programs: the `bin` folder of the environment where it is installed.
    """

    served: tuple[End, ...] = ((NODES_SEE, PORT),)

    def __init__(self, brood: Brood, task: Task, programs: Path) -> None:
        self.brood, self.task, self.programs, self.folder = brood, task, programs, brood.folder
        self._link: subprocess.Popen[bytes] | None = None
        self._run = ""

    @staticmethod
    def environment(folder: Path, programs: Path) -> dict[str, str]:
        """Of all its processes. They call one another by name."""
        return {
            "FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "PEERS_MODEL": str(folder / "model.pt"),
            "PYTHONPATH": str(folder / "app"), "PATH": f"{programs}:{os.environ['PATH']}",
        }  # fmt: skip

    def prepare(self) -> None:
        """The app's folder and the connection's configuration."""
        shutil.copytree(THEIRS / "flower_app", self.folder / "app")
        shutil.copyfile(THEIRS / "common.py", self.folder / "app" / "common.py")
        (self.folder / "flwr").mkdir()
        (self.folder / "flwr" / "config.toml").write_text(CONNECTION)

    def start(self) -> None:
        """The SuperLink; once it listens, the SuperNodes; then the run."""
        self.restart()
        if not until(lambda: listens(PORT), PATIENCE_S):
            raise RuntimeError(f"Flower's SuperLink does not listen; see {self.folder}/link.log")
        for holder in range(self.task.holders):
            self.brood.start(f"node-{holder}", [
                self.programs / "flower-supernode", "--insecure", "--superlink", f"{NODES_SEE}:{PORT}",
                "--port", str(NODE_PORT + holder),
                "--node-config", f"partition-id={holder} num-partitions={self.task.holders}",
            ])  # fmt: skip
        said = json.loads(self.brood.tool([self.programs / "flwr", "run", "app", "peer", "--format", "json"]))
        if not said.get("success"):
            raise RuntimeError(f"Flower did not take the run: {said.get('error-message')}")
        self._run = str(said["run-id"])

    def restart(self) -> None:
        """The SuperLink, over its database."""
        self._link = self.brood.start("link", [
            self.programs / "flower-superlink", "--insecure", "--port", str(PORT),
            *(("--host", "0.0.0.0") if alone() else ()),
            "--database", self.folder / "state.db", "--disable-runtime-dependency-installation",
        ])  # fmt: skip

    def visits(self) -> int:
        """As the clients note them."""
        return lines(self.folder / "progress")

    def state(self) -> State:
        """Done when the server app has written the model. Failure is told by `word`, which takes seconds."""
        return State.DONE if (self.folder / "model.pt").exists() else State.RUNNING

    def settled(self) -> State:
        """As `state`, and failed where its own list says so."""
        over = self._status().startswith("finished")  # asked first: it writes the model before it is over
        found = self.state()
        return State.FAILED if over and found is State.RUNNING else found

    def _status(self) -> str:
        try:
            said = json.loads(self.brood.tool([self.programs / "flwr", "list", "--format", "json"]))
            runs = [one for one in said.get("runs", []) if str(one.get("run-id")) == self._run]
        except (RuntimeError, ValueError):
            return "unknown"
        return str(runs[0].get("status", "unknown")) if runs else "unknown"

    def word(self) -> str:
        """`flwr list`'s."""
        return plain(self._status())

    def model(self) -> Path:
        """Written by the server app."""
        return self.folder / "model.pt"

    def counters(self) -> dict[str, float]:
        """None."""
        return {}

    def kill(self) -> None:
        """The SuperLink and the server app below it."""
        assert self._link is not None, "not started"
        kill_tree(self._link.pid)
        self._link.wait()

    def close(self) -> None:
        """Nothing."""
