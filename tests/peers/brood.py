"""Every process that a contestant starts: found, weighed and ended, also those that its own scripts leave behind. Linux only.

This process adopts orphans (PR_SET_CHILD_SUBREAPER), so a contestant's processes are always among its descendants. Knows no contestant.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MB = 1024.0
PACE_S = 0.25
END_S = 30.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """From now on the descendants of this process stay its descendants."""
    if _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


def parents(proc: Path = PROC) -> dict[int, int]:
    """Each living process's parent, by id; what has ended and only waits to be noticed is not among them."""
    found = {}
    for path in proc.iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    found[int(path.name)] = int(parent)
    return found


def descendants(root: int, of: Mapping[int, int]) -> list[int]:
    """All below `root`, `of` being each process's parent."""
    below: dict[int, list[int]] = {}
    for pid, parent in of.items():
        below.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def own_memory_mb(status: str) -> float:
    """RssAnon and RssShmem of a `/proc/PID/status`, in MB: what a process holds besides mapped files."""
    kb = 0
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssShmem"):
            kb += int(value.split()[0])
    return kb / MB


@dataclass
class Peak:
    """The most that was held: by all processes at one time, and by the largest."""

    all_mb: float = 0.0
    one_mb: float = 0.0

    def add(self, held: Sequence[float]) -> None:
        """One look at all processes."""
        self.all_mb = max(self.all_mb, sum(held))
        self.one_mb = max(self.one_mb, max(held, default=0.0))


@dataclass
class Brood:
    """The processes of one contestant, from `__enter__` until all are gone.

    Args:
        environment: of all of them, beside this process's own.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    peak: Peak = field(default_factory=Peak)
    _tools: set[int] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def __enter__(self) -> Brood:
        self._watch = threading.Thread(target=self._weigh, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.join()
        end_all()

    def _weigh(self) -> None:
        """Tools that a person would type are not weighed: they are gone while the contestants work."""
        while not self._over.wait(PACE_S):
            held = []
            for pid in descendants(os.getpid(), parents()):
                if pid not in self._tools:
                    with suppress(OSError):
                        held.append(own_memory_mb((PROC / str(pid) / "status").read_text()))
            self.peak.add(held)

    def start(self, name: str, command: Sequence[str | Path], cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """A service; its words go to NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in command], cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.environment}, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def tool(self, command: Sequence[str | Path], patience_s: float = 120.0) -> str:
        """What a command printed. Raises: RuntimeError: it failed or did not end."""
        child = subprocess.Popen(
            [str(word) for word in command], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **self.environment},
            start_new_session=True,
        )  # fmt: skip
        self._tools.add(child.pid)
        shown = shlex.join(map(str, command))
        try:
            out, err = child.communicate(timeout=patience_s)
        except BaseException as error:
            child.kill()
            child.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"{shown} did not end within {patience_s:.0f} s") from None
            raise
        if child.returncode:
            raise RuntimeError(f"{shown}: exit code {child.returncode}\n{out[-1000:]}\n{err[-2000:]}")
        return out


def die_with_parent() -> None:
    """Between fork and exec: if this process is killed, the child goes too."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_tree(root: int) -> None:
    """SIGKILL a process and all below it; stopped first, so that none starts another meanwhile."""
    _kill([root, *descendants(root, parents())])


def end_all() -> None:
    """SIGKILL every descendant of this process until there are none. Raises: RuntimeError: some stay."""
    until = time.monotonic() + END_S
    while found := descendants(os.getpid(), parents()):
        _kill(found)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if time.monotonic() > until:
            raise RuntimeError(f"processes stay: {found}")
        time.sleep(0.05)


def _kill(pids: Sequence[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def until(condition: Callable[[], object], patience_s: float, pace_s: float = 0.1) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pace_s)
    return True


def listens(port: int) -> bool:
    """Whether something answers on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
