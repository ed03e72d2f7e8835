"""A worker from its fork to its end: warm up, wait for one launch, do it, die. Knows the parent's word, and no other worker.

What it does before its launch it does while a visit waits for the same cores, and on pages of which each must be copied when it is first
written to: so what can be found out beforehand is found out by the parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NoReturn

from gpu_agent.compute import messages, places, worker
from gpu_agent.compute.places import Place
from gpu_agent.compute.planned import Planned
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import LoadedProgram
from shared import turns
from shared.errors import GputError, Unavailable

_PR_SET_PDEATHSIG: Final = 1
_prctl = ctypes.CDLL(None).prctl
_OOM_SCORE: Final = b"800"

Say = Callable[[dict[str, Any]], None]


def live(
    parent: int, control: int, ready: int, program: LoadedProgram, known: Planned, hbm: SharedMap, place: str, say: Say,
    waits: bool, room: int,
) -> NoReturn:  # fmt: skip
    """The child's whole life; nothing of it outlives `_exit`.

    Args:
        control: where its launch is read from; it ends when nothing is left to read.
        ready: where it says that it waits; -1: nobody asks.
        place: as `places.opened`.
        say: tells the agent.
        room: as `worker.warm_up`.
        waits: it was forked ahead, and does ahead what it can. Else its launch is there, and it begins with that.
    """
    status = 1
    try:
        _die_with(parent)
        if waits:
            turns.give_way()  # nobody waits for it yet, and everybody for a visit that is under way
        opened = _opened(hbm, place)
        if waits and not isinstance(opened, GputError):
            worker.warm_up(program, known, opened, room)
        if ready >= 0:
            os.write(ready, b"1")
        data = os.read(control, messages.MAX_MESSAGE)
        if waits:
            turns.take_turns()
        if data:
            _work(messages.unpack(data), program, known, opened, say)
            if ready >= 0:
                # What it had of the device goes back at the agent's word only: until then another worker may be taking memory there.
                os.read(control, 1)
        status = 0
    finally:
        os._exit(status)


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
    # When memory runs out the kernel should take the worker, whose launch can be repeated, and never the agent.
    told = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(told, _OOM_SCORE)
    os.close(told)


def _opened(hbm: SharedMap, name: str) -> Place | GputError:
    """Where the launch will work; or why there is none, which the launch will tell."""
    try:
        return places.opened(name, hbm)
    except GputError as error:
        return error
    except Exception as error:  # the driver's or the system's own: its type is all that may be told
        return Unavailable(f"the GPU's memory cannot be opened ({type(error).__name__})", code="compute-no-memory")


def _work(message: dict[str, Any], program: LoadedProgram, known: Planned, place: Place | GputError, say: Say) -> None:
    number, launch = message["launch"], messages.launch_of(message)
    try:
        if isinstance(place, GputError):
            raise place
        finished = worker.run(
            launch, program, place,
            lambda step, loss: say(messages.step_message(number, step, loss)), known,
        )  # fmt: skip
        say(messages.finished_message(number, replace(finished, kept=place.kept)))
    except Exception as error:  # told to the device as this launch's failure
        say(messages.failed_message(number, *worker.public_failure(error, own=launch.own)))
