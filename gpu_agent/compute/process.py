"""The agent's end of compute: starts the compute parent and speaks with it. Knows processes; no tensor and no torch."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import Any, Final

from gpu_agent.compute import messages
from gpu_agent.compute.environment import host_environment
from gpu_agent.hardware.compute import Destroyed, Failed, Finished, Launch, Loaded, News
from gpu_agent.hardware.hbm import Extent
from shared.errors import GputError, InvalidProgram, Unavailable, VerificationFailed
from shared.service.logging import get_logger

START_DEADLINE_S: Final = 120.0
LOAD_DEADLINE_S: Final = 120.0
KILL_DEADLINE_S: Final = 30.0
END_DEADLINE_S: Final = 10.0
_log = get_logger("compute")
_KINDS: Final[dict[str, type[GputError]]] = {"VerificationFailed": VerificationFailed}


class ComputeProcess:
    """Compute engines in processes that share HBM by its descriptor. Restarted when they were lost; a lost launch fails.

    Used by one caller at a time, except `wake`. A thread of its own reads, so that a training worker never waits for a poll.
    """

    def __init__(self, hbm_fd: int, hbm_bytes: int) -> None:
        self._hbm_fd, self._hbm_bytes = hbm_fd, hbm_bytes
        self._place = "host"
        self._fds: tuple[int, ...] = (hbm_fd,)
        self._environment = host_environment()
        self._changed = threading.Condition()
        self._news: deque[News] = deque()
        self._replies: deque[dict[str, Any]] = deque()
        self._wakes = 0
        self._number = 0
        self._loaded = set[
            str
        ]()  # what the parent that lives has built; it may have dropped one since, and builds it again then
        self.most_beside: int | None = None
        """Most bytes that a training took at once beside HBM, of all that finished; None: none has told."""
        self._active = self._kept = False
        self._room = 0  # bytes of a device, if known, that each one forked beside the next launch may take to warm up
        self._beside = 0  # how many workers are to wait at the next launch's end, whatever else runs; 0: none is forked
        self._alive = self._greeted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the compute parent while it lives; workers are its children."""
        return self._process.pid if self._process is not None and self._alive else None

    def spawn(self) -> None:
        """Start the compute parent without waiting until it is ready (it imports PyTorch: about a second)."""
        if self._alive:
            return
        self._reap()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [str(self._hbm_fd), str(self._hbm_bytes), str(theirs.fileno()), self._place]
        self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module, arguments are numbers)
            [sys.executable, "-m", "gpu_agent.compute", *arguments],
            pass_fds=(*self._fds, theirs.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a worker's words could quote records; what may be told comes as messages
            env=self._environment,
        )
        theirs.close()
        self._link, self._alive, self._greeted = ours, True, False
        self._replies.clear()
        self._loaded.clear()
        self._reader = threading.Thread(target=self._read, args=(ours,), name="gpu-compute", daemon=True)
        self._reader.start()

    def load(self, code: Extent, code_digest: str) -> Loaded:
        """See `Compute.load`. A parent that has the program need not hear of it again: it looks for itself at each launch."""
        self._ready()
        if code_digest in self._loaded:
            return Loaded(False)
        self._send({"op": "load", "code": asdict(code), "code_digest": code_digest})
        reply = self._reply("loaded", LOAD_DEADLINE_S)
        if "code" in reply:
            kind = _KINDS.get(reply["kind"], InvalidProgram)
            raise kind(reply["detail"], code=reply["code"])
        self._loaded.add(code_digest)
        return Loaded(reply["rebuilt"])

    def start(self, launch: Launch) -> None:
        """See `Compute.start`."""
        self._ready()
        with self._changed:
            self._number += 1
            self._active, self._kept = True, False
            self._news.clear()
        try:
            self._send(messages.launch_message(launch, self._number, self._beside, self._room))
        except Unavailable:
            with self._changed:
                self._active = False  # nobody heard of it
            raise

    @property
    def wakes(self) -> int:
        """See `Compute.wakes`."""
        return self._wakes

    def news(self, timeout_s: float, since: int | None = None) -> list[News]:
        """See `Compute.news`."""
        with self._changed:
            if not self._news and timeout_s > 0:
                known = self._wakes if since is None else since
                self._changed.wait_for(lambda: self._news or self._wakes != known, timeout_s)
            news = list(self._news)
            self._news.clear()
        return news

    def wake(self) -> None:
        """See `Compute.wake`."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def destroy(self) -> list[News]:
        """See `Compute.destroy`."""
        if self._active and self._alive:
            self._quieten(keep=True)
        if self._active:
            raise Unavailable("the compute process did not die in time", code="compute-stuck")
        return self.news(0)

    def _quieten(self, *, keep: bool) -> tuple[int, float]:
        """Have the launch's process killed. `keep`: those that wait for the next ones may stay.

        Returns:
            How many wait then; seconds that passed until all of them did.

        A parent that does not answer is dead, and its workers with it: the launch is destroyed all the same, and the next has a new parent.

        Raises:
            Unavailable: something of it still lives.
        """
        try:
            self._send({"op": "destroy", "keep": keep})
            reply = self._reply("quiet", KILL_DEADLINE_S)
            return int(reply["waiting"]), float(reply["waited"])
        except Unavailable as error:
            with self._changed:
                # Workers hold the link as well, and the kernel takes a process's memory before it closes what it held: at the link's end
                # nothing of a record is left in any of them.
                if not self._changed.wait_for(lambda: not self._alive, END_DEADLINE_S):
                    raise Unavailable("the compute process did not die in time", code="compute-stuck") from error
            return 0, 0.0

    def close(self) -> None:
        """End the compute parent and its workers."""
        if self._link is not None:
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process is not None and not self._greeted:
            self._process.kill()  # still importing: it has no worker and no data, and would hear us only afterwards
        self._reap()

    def _ready(self) -> None:
        if not self._alive:
            self.spawn()
        if not self._greeted:
            self._reply("ready", START_DEADLINE_S)
            self._greeted = True

    def _send(self, message: dict[str, Any]) -> None:
        try:
            if self._link is None:
                raise Unavailable("the compute process is not there", code="compute-lost")
            self._link.send(messages.pack(message))
        except OSError as error:
            raise Unavailable("the compute process is gone", code="compute-lost", remedy="Try again.") from error

    def _reply(self, op: str, deadline_s: float) -> dict[str, Any]:
        until = time.monotonic() + deadline_s
        with self._changed:
            while True:
                while self._replies:
                    reply = self._replies.popleft()
                    if reply["op"] == op:
                        return reply
                left = until - time.monotonic()
                if self._alive and left <= 0 and self._process is not None:
                    # What it said late would be taken for the answer to the next request, and that one's for the one after it.
                    self._process.kill()
                if not self._alive or left <= 0:
                    raise Unavailable("the compute process is gone or silent", code="compute-lost", remedy="Try again.")
                self._changed.wait(left)

    def _read(self, link: socket.socket) -> None:
        sense = True
        while True:
            try:
                data = link.recv(messages.MAX_MESSAGE)
            except OSError:
                data = b""
            with self._changed:
                if not data:
                    self._lost()
                    return
                if sense and not (sense := self._understood(data)) and self._process is not None:
                    # What follows cannot be believed either. Lost it is at the link's end, when nothing of a record is left in any of them.
                    self._process.kill()
                self._changed.notify_all()

    def _understood(self, data: bytes) -> bool:
        """Take one message. False: it is none. Raised, that would end who reads, and nobody would hear of the next ones or of the end."""
        try:
            self._take(messages.unpack(data))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            # The kind only: the error's own words may quote the message.
            _log.error("a message of the compute process makes no sense", why=type(error).__name__)
            return False
        return True

    def _take(self, message: dict[str, Any]) -> None:
        if "launch" not in message:
            self._replies.append(message)
        elif message["launch"] == self._number and self._active:
            news = messages.news_of(message)
            self._news.append(news)
            self._active = not isinstance(news, Destroyed)
            if isinstance(news, Finished):
                self._finished(news)

    def _finished(self, news: Finished) -> None:
        self._kept = news.kept
        if news.beside is not None:
            self.most_beside = max(news.beside, self.most_beside or 0)

    def _lost(self) -> None:
        """The parent is gone; its workers die with it, and with them the launch."""
        self._alive = False
        if self._active:
            self._active = False
            self._news.extend([Failed("compute-lost", "the compute processes died"), Destroyed()])
        self._changed.notify_all()

    def _reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._reader is not None:
            self._reader.join(timeout=5)
            self._reader = None
        if self._link is not None:
            self._link.close()
            self._link = None
