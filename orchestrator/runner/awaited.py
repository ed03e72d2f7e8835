"""For whom a session waits at this moment, for its page and for lists of many. Decides nothing, and opens no journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.runner.house import House
from orchestrator.runner.recoveries import Recoveries
from orchestrator.runner.session_runner import SessionRunner
from orchestrator.sessions.book import Book
from orchestrator.sessions.views import waiting_for
from shared.names import SessionPhase, VisitPhase


class Awaited:
    """Over the supervisor's runners by session and leases by GPU, and the sessions whose key is away."""

    def __init__(
        self, house: House, runners: Mapping[str, SessionRunner], leases: Mapping[str, str], recoveries: Recoveries
    ) -> None:
        self._house, self._runners, self._leases, self._recoveries = house, runners, leases, recoveries

    def by(self, book: Book) -> list[str]:
        """For whom the session of this book waits."""
        state, runner = book.durable, self._runners.get(book.durable.id)
        if runner is not None and state.phase is SessionPhase.RUNNING:
            visit = state.current
            if not runner.wishes.waiting_for and visit is not None and visit.phase is VisitPhase.AWAY:
                return [f"{visit.holder} (records)"]  # it may have gone away with the GPU: the lease ends that
            return runner.wishes.waiting_for
        return self._for_gpu(state.id, state.phase, state.gpu) or waiting_for(state)

    def by_row(self, summary: Mapping[str, Any]) -> list[str]:
        """The same of a stored summary, as a list has many of."""
        session = str(summary["id"])
        if session in self._house.catalogue.away:
            recovery = self._recoveries.of(session)
            return ["nobody: its key is sealed to another CVM or release"] if recovery is None else recovery.waits()
        runner = self._runners.get(session)
        if runner is not None:
            return self.by(runner.book)
        stored: list[str] = summary["waiting_for"]
        return self._for_gpu(session, SessionPhase(summary["phase"]), summary["gpu"]) or stored

    def _for_gpu(self, session: str, phase: SessionPhase, gpu: str) -> list[str]:
        owner = self._leases.get(gpu)
        # A running one has no GPU either, where its lease went to another while its journal could not be read.
        if phase in (SessionPhase.READY, SessionPhase.RUNNING) and owner not in (None, session):
            return [f"{gpu} (in use by {owner})"]
        return []
