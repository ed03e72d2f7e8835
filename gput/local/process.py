"""One service in a child process: start, wait for its ready line, stop. Knows no service's meaning."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import Unavailable

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
TAIL_LINES = 12


class Service:
    """A child process that prints one JSON line `{"ready": URL, …}` on stdout once it listens; its log goes to a file."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.ready: dict[str, Any] = {}
        self._command = [sys.executable, *arguments]
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self.ready["ready"])

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self.alive and self._process else None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> dict[str, Any]:
        """Start it and wait until it listens.

        Raises:
            Unavailable: it ended or stayed silent; the message carries the end of its log.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # A session of its own keeps the terminal's Ctrl-C from it: the launcher stops the services in their order.
        with self.log.open("ab") as log:
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
            )
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._process = await starting  # so that `stop` finds it
                raise
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                self.ready = await self._ready_line()
        except TimeoutError:
            await self.stop()
            raise self._failed(f"did not listen within {READY_TIMEOUT_S:.0f} s") from None
        return self.ready

    async def _ready_line(self) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise self._failed("was not started")
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise self._failed(f"ended with exit code {code} before it listened")
        value: dict[str, Any] = json.loads(line)
        return value

    async def stop(self, number: int = signal.SIGTERM) -> int | None:
        """Signal it, wait, and kill it if it does not end in time. Returns its exit code."""
        if self._process is None:
            return None
        if self._process.returncode is None:
            self._process.send_signal(number)
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        return self._process.returncode

    async def ended(self) -> int:
        """Wait for its end."""
        return await self._process.wait() if self._process else 0

    def failure(self) -> Unavailable:
        """Why it is gone, for people."""
        code = self._process.returncode if self._process else None
        return self._failed(f"ended unexpectedly with exit code {code}")

    def _failed(self, what: str) -> Unavailable:
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if self.log.exists() else []
        tail = ("; its log ends:\n    " + "\n    ".join(lines)) if lines else ""
        return Unavailable(f"{self.name} {what}{tail}\n", code="service-ended", remedy=f"The whole log is {self.log}.")
