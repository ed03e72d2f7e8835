"""The program of a request: fetched once, kept with the request, and verified each time it is shown. Knows no decision."""

from __future__ import annotations

import asyncio
from typing import Final

from data_holder.links import OrchestratorLink
from data_holder.requests import program_from_archive, verify_program
from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.claims.program import ProgramManifest
from shared.service.statements import update_row
from shared.service.store import Store

AT_HAND: Final = 16
"""Programs kept in memory: a program manifest can be megabytes."""


class Programs:
    """By session. Every request keeps its own: it outlives this process, and another session's removal."""

    def __init__(self, store: Store, link: OrchestratorLink) -> None:
        self._store, self._link = store, link
        self._at_hand: dict[str, tuple[bytes, ProgramManifest]] = {}

    async def of(self, session: str, digest: str) -> ProgramManifest:
        """The program that the session's manifest names by `digest`.

        Raises:
            Unavailable: the orchestrator did not answer. VerificationFailed, InvalidProgram: it is another, or none.
        """
        data = (await self._store.read(lambda connection: rows.request(connection, session)))["program"]
        if data is None:
            data = self._at_hand[digest][0] if digest in self._at_hand else await self._fetched(digest)
            await self._store.write(
                lambda connection: update_row(connection, REQUESTS, {"session": session}, {"program": data})
            )
        if digest not in self._at_hand:
            if len(self._at_hand) >= AT_HAND:
                self._at_hand.clear()
            self._at_hand[digest] = data, verify_program(data, digest)
        return self._at_hand[digest][1]

    async def kept(self, session: str, digest: str) -> ProgramManifest | None:
        """As `of`, of a program that was fetched; None: it was not yet. Raises: VerificationFailed, InvalidProgram."""
        data = (await self._store.read(lambda connection: rows.request(connection, session)))["program"]
        return None if data is None else await asyncio.to_thread(verify_program, data, digest)

    async def _fetched(self, digest: str) -> bytes:
        archive = await self._link.get(f"/v1/programs/{digest}/archive")
        return await asyncio.to_thread(program_from_archive, archive, digest)
