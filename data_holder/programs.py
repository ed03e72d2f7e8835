"""The program of a request: fetched once, kept with the request, and verified by whoever reads it first. Knows no decision."""

from __future__ import annotations

import asyncio
from typing import Final

from data_holder.links import OrchestratorLink
from data_holder.requests import program_from_archive, verify_program
from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.claims.program import ProgramManifest
from shared.errors import GputError, VerificationFailed
from shared.service.logging import get_logger
from shared.service.statements import update_row
from shared.service.store import Store

AT_HAND: Final = 16
"""Programs kept in memory: a program manifest can be megabytes."""
_log = get_logger("data_holder.programs")


class Programs:
    """By session. Every request keeps its own: it outlives this process, and another session's removal."""

    def __init__(self, store: Store, link: OrchestratorLink) -> None:
        self._store, self._link = store, link
        self._at_hand: dict[str, tuple[bytes, ProgramManifest]] = {}

    async def of(self, session: str, digest: str) -> ProgramManifest:
        """The program that the session's manifest names by `digest`. What is kept of it and is damaged is fetched anew: nothing depends on
        the copy that lies here, and nobody else would ever put it right.

        Raises:
            Unavailable: the orchestrator did not answer. VerificationFailed, InvalidProgram: it is another, or none.
        """
        kept = await self._kept(session)
        if digest not in self._at_hand:
            program = None if kept is None else _verified(session, kept, digest)
            data = kept if kept is not None and program is not None else await self._fetched(digest)
            if len(self._at_hand) >= AT_HAND:
                self._at_hand.clear()
            self._at_hand[digest] = data, program or verify_program(data, digest)
        data, program = self._at_hand[digest]
        if data != kept:
            await self._store.write(
                lambda connection: update_row(connection, REQUESTS, {"session": session}, {"program": data})
            )
        return program

    async def to_show(self, session: str, digest: str) -> ProgramManifest | None:
        """As `of`; None where it was never fetched, or is damaged and cannot be had again: by then a decision may be signed and stored, and
        an error in its place would say that it was not.

        Raises:
            NotFound: no such request.
        """
        if await self._kept(session) is None:
            return None
        try:
            return await self.of(session, digest)
        except GputError as error:
            _log.warning("a session's program cannot be shown", session=session, code=error.code, detail=error.detail)
            return None

    async def _kept(self, session: str) -> bytes | None:
        kept: bytes | None = (await self._store.read(lambda connection: rows.request(connection, session)))["program"]
        return kept

    async def kept(self, session: str, digest: str) -> ProgramManifest | None:
        """As `of`, of a program that is here; None: it would be fetched, for the first time or in place of a damaged copy.

        Raises:
            InvalidProgram: it is none.
        """
        data = await self._kept(session)
        return None if data is None else await asyncio.to_thread(_verified, session, data, digest)

    async def _fetched(self, digest: str) -> bytes:
        archive = await self._link.get(f"/v1/programs/{digest}/archive")
        return await asyncio.to_thread(program_from_archive, archive, digest)


def _verified(session: str, data: bytes, digest: str) -> ProgramManifest | None:
    """The program, or None where it is not the one that is meant. Raises: InvalidProgram."""
    try:
        return verify_program(data, digest)
    except VerificationFailed as error:
        _log.warning(
            "the program that is kept of a session is damaged: whoever needs it fetches it anew",
            session=session,
            code=error.code,
        )
        return None
