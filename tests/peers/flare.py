"""NVIDIA FLARE as a contestant: provisioned server and sites, FedAvg or cyclic. Knows its command line and files only."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from tests.peers.brood import Brood, kill_tree
from tests.peers.contestant import State, lines, plain
from tests.peers.task import Task
from tests.peers.traffic import End

PORT = 8002
THEIRS = Path(__file__).parent / "theirs"
KITS = Path("poc/example_project/prod_00")
SHARED_STORE = "/tmp/nvflare"  # what it writes to, said to be replaced
MODEL = "app_server/FL_global_model.pt"
START_S = 120


class Flare:
    """One job. `kind`: `fedavg`, or `cyclic`, where one model goes from site to site, which is nearest to travelling.

    Args:
        programs: the `bin` folder of the environment where it is installed.
    """

    served: tuple[End, ...] = (("127.0.0.1", PORT), ("::1", PORT))

    def __init__(self, brood: Brood, task: Task, programs: Path, kind: str) -> None:
        self.brood, self.task, self.programs, self.kind, self.folder = brood, task, programs, kind, brood.folder
        self._job = ""

    @staticmethod
    def environment(folder: Path, programs: Path) -> dict[str, str]:
        """Of all its processes. Its scripts call the first `python3` there is; its tools keep state at home."""
        return {
            "NVFLARE_POC_WORKSPACE": str(folder / "poc"), "HOME": str(folder / "home"),
            "PYTHONPATH": str(folder / "scripts"), "PATH": f"{programs}:{os.environ['PATH']}",
        }  # fmt: skip

    def prepare(self) -> None:
        """Certificates and startup kits, and the job's folder."""
        (self.folder / "home").mkdir()
        scripts = self.folder / "scripts"
        scripts.mkdir()
        for name in ("common.py", "flare_client.py", "flare_job.py"):
            shutil.copyfile(THEIRS / name, scripts / name)
        self.brood.tool([self.programs / "python", scripts / "flare_job.py", self.folder / "job", self.kind])
        self._nvflare("poc", "prepare", "-n", str(self.task.holders), "--force")

    def _nvflare(self, *words: str) -> str:
        return self.brood.tool([self.programs / "nvflare", *words], START_S + 30)

    def start(self) -> None:
        """Server and sites, until it says that all are there; then the job."""
        self._nvflare("poc", "start", "--timeout", str(START_S))
        said = json.loads(self._nvflare("job", "submit", "-j", str(self.folder / "job" / "peer"), "--format", "json"))
        self._job = str(said["data"]["job_id"])

    @property
    def _kept(self) -> Path:
        return self.folder / "poc" / "jobs-storage" / self._job

    def visits(self) -> int:
        """As the clients note them."""
        return lines(self.folder / "progress")

    def state(self) -> State:
        """By the server's own file about the job."""
        try:
            status = str(json.loads((self._kept / "meta").read_text())["status"])
        except (OSError, ValueError, KeyError):
            return State.RUNNING
        if status == "FINISHED:COMPLETED":
            return State.DONE if (self._kept / "workspace").exists() else State.RUNNING
        return State.FAILED if status.startswith(("FINISHED", "FAILED")) else State.RUNNING

    def settled(self) -> State:
        """As `state`."""
        return self.state()

    def word(self) -> str:
        """`nvflare job list`'s."""
        try:
            found: list[dict[str, Any]] = json.loads(self._nvflare("job", "list", "--format", "json")).get("data", [])
        except (RuntimeError, ValueError):
            return "unknown"
        return plain(next((str(one["status"]) for one in found if one["job_id"] == self._job), "unknown"))

    def model(self) -> Path:
        """Taken out of the workspace that the server stored."""
        with zipfile.ZipFile(self._kept / "workspace") as stored:
            return Path(stored.extract(MODEL, self.folder / "model"))

    def counters(self) -> dict[str, float]:
        """None."""
        return {}

    def kill(self) -> None:
        """The server, its job process, and not the loop of its start script, which is there to restart it."""
        kill_tree(int((self.folder / KITS / "server" / "pid.fl").read_text()))

    def restart(self) -> None:
        """Nothing: its start script does, within seconds."""

    def close(self) -> None:
        """Nothing."""
