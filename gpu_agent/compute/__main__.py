"""The clean, warmed-up parent of all compute: holds PyTorch and built graphs, never data; forks one worker per launch.

    python -m gpu_agent.compute HBM_FD HBM_BYTES SOCKET_FD PLACE

PLACE is `host` where HBM is what HBM_FD names; else HBM lies on a device, and HBM_FD names what the program is read from (`places`).

Single-threaded. The agent's end of the socket is its only master: when that closes, everything here dies.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import torch
from blake3 import blake3

from gpu_agent.compute import forked, huge_pages, messages, places, worker
from gpu_agent.compute.child import Child
from gpu_agent.compute.planned import Planned, by_default, planned
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import LoadedProgram, load_program
from gpu_agent.workload.training import pin_determinism
from shared.core_files import leave_no_core
from shared.errors import GputError, VerificationFailed
from shared.quota import usable_cores

_CACHE_LIMIT = 8
_WARM_DEADLINE_S = 20.0
_SOON_S, _LATER_S = 0.006, 0.1  # after a launch: its visit is settled by then; no other launch follows soon


class Parent:
    """Obeys the agent's messages: load, run, destroy, prepare, drop."""

    def __init__(self, hbm: SharedMap, link: socket.socket, place: str) -> None:
        self._hbm, self._place = hbm, place
        # On a device a waiting worker holds memory of it, which the agent sweeps after a launch: there it says when to fork the next.
        self._ahead = place == places.HOST
        self._link = link
        self._cores = usable_cores()
        self._pid = os.getpid()
        self._programs: dict[str, LoadedProgram] = {}
        self._planned: dict[str, Planned] = {}  # by program, as its last launch had it
        self._spares: list[Child] = []  # they wait, the oldest first; on the host one at most
        self._running: Child | None = None
        self._due: tuple[str, float] | None = None  # of which program to fork the next worker, and when at the latest

    def serve(self) -> None:
        """Until the agent is gone."""
        self._say({"op": "ready", "torch": torch.__version__})
        while True:
            waiting: list[Any] = [self._link, *(worker.pidfd for worker in self._all())]
            readable, _, _ = select.select(waiting, [], [], self._left())
            for one in self._all():
                if one.pidfd in readable:
                    self._buried(one)
                    # Not after a spare that died waiting: whatever kills it would kill the next one too; a launch will try again.
                    if one.launch is not None:
                        self._prepare_later(one.code_digest)
            if self._link in readable and not self._obey():
                self._end()
                return
            self._when_due()

    def _all(self) -> list[Child]:
        return self._spares + ([] if self._running is None else [self._running])

    def _left(self) -> float | None:
        """Seconds until a worker is to be forked without having been asked for; None: none is."""
        return None if self._due is None else max(0.0, self._due[1] - time.monotonic())

    def _when_due(self) -> None:
        """Fork it, if it is time."""
        if self._due is not None and not self._left():
            self._prepare_spare(self._due[0])

    def _prepare_later(self, digest: str) -> None:
        """A launch is over, its visit is being settled, and the next one's records come, for all of which everybody waits: short visits'
        launches fork their own, when processors are otherwise idle, and only where none comes soon is the next worker forked without. Of
        a small program a worker that has waited saves more than it costs."""
        if self._ahead:
            soon = digest in self._programs and worker.is_small(
                self._programs[digest], self._planned[digest], places.HostPlace.warm_up_bytes
            )
            self._due = digest, time.monotonic() + (_SOON_S if soon else _LATER_S)

    def _obey(self) -> bool:
        data = self._link.recv(messages.MAX_MESSAGE)
        if not data:
            return False
        message = messages.unpack(data)
        match message["op"]:
            case "load":
                self._load(message)
            case "run":
                self._run(message)
            case "destroy":
                self._destroy(keep=message["keep"])
            case "rest":
                self._say({"op": "resting", "waiting": self._warm_spares()})
            case "drop":
                self._end()
                self._running = self._due = None
                self._say({"op": "dropped"})
            case "prepare" if message["code_digest"] in self._programs:
                self._prepare_spare(message["code_digest"])
        return True

    def _load(self, message: dict[str, Any]) -> None:
        digest = message["code_digest"]
        try:
            rebuilt = self._built(Extent(**message["code"]), digest)
        except GputError as error:
            self._say({"op": "loaded", "code": error.code, "detail": error.detail, "kind": type(error).__name__})
            return
        self._say({"op": "loaded", "rebuilt": rebuilt})
        if self._ahead:
            self._prepare_spare(digest)

    def _built(self, code: Extent, digest: str) -> bool:
        """Make sure the program is built; whether it had to be. The bytes are read from HBM and must have the digest."""
        if digest in self._programs:
            return False
        archive = bytes(self._hbm.view[code.address : code.address + code.length])
        if blake3(archive).hexdigest() != digest:
            raise VerificationFailed("the code region does not hold the measured program", code="code-digest-mismatch")
        if len(self._programs) >= _CACHE_LIMIT:
            self._programs.clear()
            self._planned.clear()
        program = self._programs[digest] = load_program(archive, places.device_of(self._place))
        self._planned[digest] = by_default(program.manifest)
        gc.collect()
        gc.freeze()  # workers then never copy pages only because the collector touches objects
        huge_pages.collapse()
        return True

    def _run(self, message: dict[str, Any]) -> None:
        digest, number = message["code_digest"], message["launch"]
        if self._running is not None:  # it has said its last word, for the device starts one launch at a time
            self._running.kill()
            self._buried(self._running, reaped=True)
        try:
            self._built(Extent(**message["code"]), digest)
        except GputError as error:
            self._say(messages.failed_message(number, error.code, error.detail))
            self._say({"op": "destroyed", "launch": number})
            return
        self._prepare_spare(digest, at_once=True)
        chosen = self._spares.pop(0)
        chosen.launch, chosen.own, self._running = number, message["own"], chosen
        with suppress(BrokenPipeError):  # killed while it waited: its burial will tell, and the next launch has another
            os.write(chosen.control, messages.pack(message))
        threads = self._plan(digest, message["options"], message["accumulate"]).options.threads
        # While the launch runs, where it leaves a core for that: forking and warming up take as long as half a visit's control, and
        # would hold up the launch's destruction. Where it needs every core, they come when it is over.
        if message["beside"] or (self._ahead and threads < self._cores):
            self._prepare_spare(digest, number=message["beside"] or 1, room=message["room"])

    def _plan(self, digest: str, stated: dict[str, object], accumulate: bool) -> Planned:
        """For the next launch of that program, which will be as this one; done while this one is under way."""
        known = self._planned[digest]
        if not known.serves(stated, accumulate):
            known = self._planned[digest] = planned(self._programs[digest].manifest, stated, accumulate)
        return known

    def _prepare_spare(self, digest: str, *, number: int = 1, at_once: bool = False, room: int = 0) -> None:
        """Fork ahead of the next launch, until so many wait: forking and first touches are then off its path. `at_once`: the launch is
        there. `room`: as `messages.launch_message`."""
        self._due = None
        for other in [one for one in self._spares if one.code_digest != digest]:
            self._drop(other)
        while len(self._spares) < number:
            self._fork(digest, at_once, room)

    def _fork(self, digest: str, at_once: bool, room: int) -> None:
        read_end, write_end = os.pipe()
        ready, says_ready = (-1, -1) if self._ahead else os.pipe()
        # On a device one must be warm before its launch, or what is free there is not known.
        waits = not (self._ahead and at_once)
        # At the usual priority: who once had a lower one (SCHED_IDLE) needs CAP_SYS_NICE to leave it, and starves a launch till then.
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            program, known = self._programs[digest], self._planned[digest]
            forked.live(self._pid, read_end, says_ready, program, known, self._hbm, self._place, self._say, waits, room)
        os.close(read_end)
        if not self._ahead:
            os.close(says_ready)
        self._spares.append(Child(pid, os.pidfd_open(pid), write_end, ready, digest))

    def _warm_spares(self) -> int:
        """How many workers wait on a device; known once each does, or has died, or has taken too long: such are dropped."""
        until = time.monotonic() + _WARM_DEADLINE_S
        for spare in list(self._spares):
            if not spare.warm:
                left = max(0.0, until - time.monotonic())
                readable, _, _ = select.select([spare.ready, spare.pidfd], [], [], left)
                # Of one that died nothing is left to read.
                spare.warm = spare.ready in readable and os.read(spare.ready, 1) != b""
            if not spare.warm:
                self._drop(spare)
        return len(self._spares)

    def _destroy(self, *, keep: bool) -> None:
        """`keep`: whether workers that wait may stay. Each has to have what it will hold of a device before the other one's memory is
        anybody's to take."""
        dead, since = self._running, time.monotonic()
        if not self._ahead and keep:
            self._warm_spares()
        elif not self._ahead:
            for spare in list(self._spares):
                self._drop(spare)
        waited = time.monotonic() - since
        if dead is not None:
            dead.kill()
            self._buried(dead, reaped=True)
        self._say({"op": "quiet", "waiting": len(self._spares), "waited": waited})
        if dead is not None:
            self._prepare_later(dead.code_digest)

    def _buried(self, dead: Child, *, reaped: bool = False) -> None:
        """A worker has died: its memory is gone. Tell, if it had a launch."""
        status = 0 if reaped else os.waitpid(dead.pid, 0)[1]
        if not reaped:
            dead.let_go()
        if dead in self._spares:
            self._spares.remove(dead)
            return
        self._running = None
        if dead.launch is not None and os.WIFSIGNALED(status):
            self._say(messages.failed_message(dead.launch, *dead.died_of(os.WTERMSIG(status))))
        if dead.launch is not None:
            self._say({"op": "destroyed", "launch": dead.launch})

    def _drop(self, spare: Child) -> None:
        spare.kill()
        self._spares.remove(spare)

    def _end(self) -> None:
        for one in self._all():
            one.kill()
        self._spares.clear()

    def _say(self, message: dict[str, Any]) -> None:
        self._link.send(messages.pack(message))


def main(argv: list[str]) -> int:
    """Entry point of the compute parent."""
    (hbm_fd, size, link_fd), place = (int(argument) for argument in argv[:3]), argv[3]
    leave_no_core()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to handle
    worker.warm_imports()
    pin_determinism(1)
    hbm = SharedMap(hbm_fd, size)
    link = socket.socket(fileno=link_fd)
    try:
        Parent(hbm, link, place).serve()
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the agent went away while we spoke; workers die with us
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
