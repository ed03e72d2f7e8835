"""This CVM as its own code sees it: what it measures of itself, and evidence that carries the log of it. Knows no verifier, no session.

At first use the configuration is measured; from then on facts are recorded as they happen. A register is extended first and logged
after, one event at a time, so that every quote fits the log beside it. What the backend cannot extend is measured into the runtime
register instead; without one (SEV-SNP) nothing is, and a profile that asks for registers refuses such evidence.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable

from shared.claims.event_log import RUNTIME, Content, Entry, Event, EventLog, extended
from shared.crypto.secret import Secret
from shared.service.evidence import EvidenceProvider
from shared.wire.visit import Evidence

KEPT = 256
"""Runtime events that a log shows; older ones are summed up in the value that the log starts from."""


class Guest:
    """Evidence and sealing keys of this process's CVM.

    Args:
        boot: the events of its configuration, measured once before anything else.
    """

    def __init__(self, provider: EvidenceProvider, boot: Iterable[Event]) -> None:
        self._provider, self._boot = provider, tuple(boot)
        self._waiting = [*self._boot]
        self._lock = asyncio.Lock()
        self._values: dict[int, bytes] | None = None
        self._start: dict[int, bytes] = {}
        self._log: list[Event] = []

    async def quote(self, report_data: bytes, about: str | None = None) -> Evidence:
        """Evidence over 64 bytes, with the event log; events of sessions other than `about` are hidden behind their digests.

        Raises:
            BadRequest, NotAuthenticated, Unavailable: as the backend. Conflict: another process runs as this CVM.
        """
        async with self._lock:
            await self._measure()
            evidence = await self._provider.quote(report_data)
            if not self._values:
                return evidence
            log = base64.b64encode(self._shown(about).to_bytes()).decode()
            return evidence.model_copy(update={"event_log": log})

    async def record(self, kind: str, content: Content) -> None:
        """Measure a fact into the runtime register, once; recorded when this returns. Raises: as `quote`."""
        event = Event(register=RUNTIME, type=kind, content=content)
        async with self._lock:
            if event not in self._waiting and event not in self._log[-KEPT // 2 :]:
                self._waiting.append(event)
            await self._measure()

    async def begin_again(self) -> None:
        """As at first use, if the machine allows it or another process extended its registers since. Raises: as `quote`."""
        async with self._lock:
            if await self._provider.relaunch() or await self._moved():
                self._values, self._start, self._waiting, self._log = None, {}, [*self._boot], []

    async def derived_key(self, label: str) -> Secret:
        """32 bytes bound to (machine, measured code, label). Raises: NotAuthenticated, Unavailable, VerificationFailed."""
        return await self._provider.derived_key(label)

    async def aclose(self) -> None:
        """Release connections."""
        await self._provider.aclose()

    async def _moved(self) -> bool:
        """Whether what was remembered is not what the registers hold: no log from before fits them, and no extension is taken."""
        return self._values is not None and await self._provider.registers() != self._values

    async def _measure(self) -> None:
        """Everything that waits, in order. What fails stays first in line: whether it took effect is for its repeat to find out."""
        if self._values is None:
            self._values = await self._provider.registers()
            self._start = dict(self._values)
        while self._waiting:
            event = self._waiting[0]
            register = event.register_index if event.register_index in self._values else RUNTIME
            if register in self._values:
                event = event.model_copy(update={"register_index": register})
                before = self._values[register]
                await self._provider.extend(register, event.digest, before)
                self._values[register] = extended(before, event.digest)
                self._log.append(event)
                self._forget()
            self._waiting.pop(0)

    def _forget(self) -> None:
        while len(self._log) > KEPT:
            oldest = self._log.pop(0)
            register = oldest.register_index
            self._start[register] = extended(self._start[register], oldest.digest)

    def _shown(self, about: str | None) -> EventLog:
        start = {str(register): value.hex() for register, value in self._start.items() if any(value)}
        return EventLog(start=start, entries=tuple(_entry(event, about) for event in self._log))


def _entry(event: Event, about: str | None) -> Entry:
    if event.content.get("session") in (None, about):
        return Entry(event=event)
    return Entry(register=event.register_index, digest=event.digest.hex())
