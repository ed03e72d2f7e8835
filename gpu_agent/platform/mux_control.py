"""Which CVM port each GPU is bound to: the platform's side of the virtual MUX. Knows no HTTP and no key.

Nothing secret depends on it being right (design 4.3 step 4): a wrong switch costs availability only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from shared.errors import BadRequest, NotFound
from shared.names import ORCHESTRATOR_PORT

_PORT = re.compile(re.escape(ORCHESTRATOR_PORT) + r"|holder-[a-z0-9][a-z0-9-]{0,62}")
Bind = Callable[[str, str | None], Awaitable[None]]
"""(gpu, port): makes the agent's MUX follow; raises what the agent answered."""


@dataclass(frozen=True)
class MuxState:
    """`port` is None while the GPU is bound to nobody; `switches` counts changes since the platform started."""

    gpu: str
    port: str | None
    switches: int


class MuxControl:
    """One state per GPU. A switch is in force once the agent has taken it; until then the old state stands."""

    def __init__(self, gpus: Iterable[str], bind: Bind) -> None:
        self._states = {gpu: MuxState(gpu, None, 0) for gpu in gpus}
        self._locks = {gpu: asyncio.Lock() for gpu in self._states}
        self._bind = bind

    def states(self) -> list[MuxState]:
        """All GPUs, by name."""
        return [self._states[gpu] for gpu in sorted(self._states)]

    async def switch(self, gpu: str, port: str | None) -> MuxState:
        """Bind `gpu` to `port`. Repeating a switch tells the agent again, which may have restarted, and counts as none.

        Raises:
            NotFound: `unknown-gpu`.
            BadRequest: `bad-port`.
            GputError: what the agent answered; the state is unchanged.
        """
        if gpu not in self._states:
            raise NotFound(f"no GPU {gpu} on this platform", code="unknown-gpu")
        if port is not None and not _PORT.fullmatch(port):
            raise BadRequest(f"{port!r} is not a MUX port", code="bad-port")
        async with self._locks[gpu]:
            before = self._states[gpu]
            await self._bind(gpu, port)
            changed = port != before.port
            self._states[gpu] = MuxState(gpu, port, before.switches + changed)
            return self._states[gpu]
