"""One GPU as the agent keeps it: device, compute, MUX, and threads of its own. Knows no HTTP and looks into no message.

Every GPU has a thread for SPDM, one for command frames (a poll may wait there), one for copies that come over HTTP and may take long (a
doorbell brings a thread of its own), one for staging, and one for what it does ahead; none of them holds up the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Final, TypeVar

from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.mux import Mux
from gpu_agent.line import Line
from gpu_agent.presence import Presence
from gpu_agent.views import GpuView
from shared.errors import NotFound
from shared.quota import usable_cores
from shared.service.logging import get_logger
from shared.wire.copy import HEADER_BYTES, MAX_CLOSING_BYTES, MAX_TAGS_BYTES, Copied

_log = get_logger("gpu")

KINDS: Final = ("spdm", "commands", "copy", "staging")
AHEAD_NICENESS: Final = 5
"""More than the agent's own: where an operator gave that a lower priority already, nobody may raise it without CAP_SYS_NICE."""
SHORT_BYTES: Final = HEADER_BYTES + MAX_CLOSING_BYTES + MAX_TAGS_BYTES
"""Of a copy record that may be the closing one, over which the GPU hashes all that came before."""
FEW_CORES: Final = 2
"""With more of them a thread that is woken for a record finds one, and opens it while the loop receives the next."""
T = TypeVar("T")


class GpuUnit:
    """One GPU with its MUX and its threads. `closed`: called once it is powered off."""

    def __init__(
        self, device: Device, compute: ComputeProcess, mux: Mux, closed: Callable[[], None] = lambda: None
    ) -> None:
        self.device, self.compute, self.mux, self._closed = device, compute, mux, closed
        self.presence = Presence(mux)
        self._few_cores = usable_cores() <= FEW_CORES
        self._threads = {kind: ThreadPoolExecutor(1, f"gpu-{kind}") for kind in KINDS}
        # Of these one may wait for long on its thread (a poll), and anybody may send more meanwhile.
        self._commands = Line(self._threads["commands"])
        self._ahead = ThreadPoolExecutor(1, "gpu-ahead", initializer=_give_way)

    async def act(self, kind: str, port: str, act: Callable[[], T]) -> T:
        """Run on the thread of this kind, if `port` is bound then.

        Raises:
            Conflict: `port-not-bound`. Unavailable `too-many-frames`: so many commands wait; and what the device raises.
        """

        def bound() -> T:
            self.mux.require(port)
            return act()

        return await self.stage(bound, kind)

    async def copied(self, port: str, record: bytes | memoryview) -> Copied:
        """One copy record that came over HTTP. On few cores a long one is opened by the event loop itself: a thread that is woken for it
        waits for a core while the loop receives the next one and its sender seals, a millisecond, ten times what opening takes (ADR 51).

        Raises:
            Conflict: `port-not-bound`; and what `Device.copy` raises.
        """
        if self._few_cores and len(record) > SHORT_BYTES:
            self.mux.require(port)
            if (ack := self.device.copy_at_once(port, record)) is not None:
                return ack
        return await self.act("copy", port, lambda: self.device.copy(port, record))

    async def stage(self, act: Callable[[], T], kind: str = "staging") -> T:
        """Run on the thread of this kind, whichever port is bound: staging is host memory. Raises: as `act`."""
        context = copy_context()  # what the thread logs belongs to the request
        if kind == "commands":
            return await self._commands.act(lambda: context.run(act))
        return await asyncio.get_running_loop().run_in_executor(self._threads[kind], lambda: context.run(act))

    def obey(self, frame: bytes) -> bytes:
        """A command frame's answer (`Device.commands`), with whatever the device may do before the next one begun: the frame that commits
        waits for that, and would wait longer if it began once the answer is on its way (ADR 50)."""
        answer = self.device.commands(frame)
        self._look_ahead()
        return answer

    def _look_ahead(self) -> None:
        """On a thread of its own. After most frames there is nothing, and waking a thread to find that out would hold up the answer."""
        if not self.device.has_work_ahead:
            return
        with suppress(RuntimeError):  # the unit is being powered off
            self._ahead.submit(self.device.look_ahead).add_done_callback(_reported)

    def view(self) -> GpuView:
        """Public facts."""
        selected = self.mux.selected
        return GpuView(
            gpu=self.device.gpu_id,
            backend=self.device.backend.value,
            port=selected.port,
            switches=selected.switches,
            boot_counter=self.device.boot_counter,
            memory_bytes=self.device.memory_bytes,
            statement_certificate=self.device.statement_certificate().hex(),
        )

    def power_off(self) -> None:
        """End compute and wipe; a poll that waits is let go first."""
        self.device.close()
        for threads in (*self._threads.values(), self._ahead):
            threads.shutdown(wait=True)
        self._closed()


def _give_way() -> None:
    """Whoever is asked for something goes first on this machine's cores: what is done ahead would hold up the step that it is to save."""
    os.nice(AHEAD_NICENESS)  # of this thread alone, as Linux has it (nice(2))


def _reported(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _log.error("the GPU failed between two frames", exc_info=error)


def unit_of(units: Mapping[str, GpuUnit], gpu: str) -> GpuUnit:
    """The GPU of this name. Raises: NotFound `unknown-gpu`."""
    if gpu not in units:
        raise NotFound(f"this agent has no GPU {gpu!r}", code="unknown-gpu")
    return units[gpu]
