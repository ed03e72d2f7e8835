"""Sessions' rows as they lie in the database, for who shows them or tidies up: not verified. Knows no journal and no book.

The database is the platform's: one row that cannot be read must not take the others away from whoever asks for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import DBAPIError

from orchestrator.tables import SESSIONS
from shared.claims.visit import SESSION_PATTERN
from shared.errors import BadRequest, NotFound, VerificationFailed
from shared.names import SessionPhase
from shared.service.logging import get_logger
from shared.service.statements import find_row

LISTED = tuple(column for column in SESSIONS.c if column.name not in ("manifest", "signature"))
"""What lists want; a manifest may be as long as all the rest of a page."""
ILLEGIBLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError,
    DBAPIError,  # where the store found no other cause for it: a server cannot read what lies in its own row
)  # fmt: skip
"""What reading a row raises in which somebody has put a value of another form or type."""
_SESSION = re.compile(SESSION_PATTERN)
_log = get_logger("sessions")


def require_session_id(session: str) -> None:
    """Before a caller's text goes to the database, which may refuse it (PostgreSQL a NUL) as if a row were damaged.

    Raises:
        NotFound: code `unknown-session`: no session is called so.
    """
    if _SESSION.fullmatch(session) is None:
        raise no_session(session)


def no_session(session: str) -> NotFound:
    """What it is answered that names a session that there is not."""
    return NotFound(f"There is no session {session}", code="unknown-session")


@contextmanager
def legible(session: str) -> Iterator[None]:
    """What is stored of the session is being read, and has the form in which this service writes it.

    Raises:
        VerificationFailed: code `journal-tampered`: it has not. Errors of the family pass as they are.
    """
    try:
        yield
    except ILLEGIBLE as error:
        raise VerificationFailed(
            f"What is stored of {session} does not have the form in which it was written ({type(error).__name__})",
            code="journal-tampered",
            remedy="Somebody changed the database behind this service: restore it from a backup, and ask who had access.",
        ) from error


@contextmanager
def showable(session: str) -> Iterator[None]:
    """As `legible`, of what is only shown: a stored document that is none is no fault of who asks for it. Raises: as `legible`."""
    with legible(session):
        try:
            yield
        except BadRequest as error:
            raise ValueError("a stored document has another form") from error


def listed(connection: Connection, statement: Select[Any]) -> list[dict[str, Any]]:
    """The rows of a statement over `LISTED`. Of one that cannot be read there is `id`, `number` and a `summary` that is None: who pages
    through them still finds its place."""
    try:
        return [_checked(dict(row)) for row in connection.execute(statement).mappings()]
    except ILLEGIBLE:
        found = statement.with_only_columns(SESSIONS.c.id, SESSIONS.c.number, maintain_column_froms=True)
        return [_one(connection, row.id, row.number) for row in connection.execute(found).all()]


def _one(connection: Connection, session: str, number: int) -> dict[str, Any]:
    try:
        row = connection.execute(select(*LISTED).where(SESSIONS.c.id == session)).mappings().one()
        return _checked(dict(row))
    except ILLEGIBLE as error:
        _log.error("a session's row cannot be read", session=session, exc_info=error)
        return {"id": session, "number": number, "summary": None}


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """Raises: one of `ILLEGIBLE`, where the summary could not be shown or asked for what it must say."""
    summary = row["summary"]
    paused_at = summary.get("paused_at")
    if not (paused_at is None or (isinstance(paused_at, float | int) and abs(paused_at) < 2**53)):
        raise TypeError("a time is a number of seconds")
    if not all(isinstance(holder["holder"], str) for holder in summary["holders"]):
        raise TypeError("a holder's name is a text")
    SessionPhase(summary["phase"])
    if not (
        isinstance(summary["id"], str) and isinstance(summary["gpu"], str) and isinstance(summary["waiting_for"], list)
    ):
        raise TypeError("whom a session waits for is looked up by its own name and its GPU's")
    json.dumps(summary, ensure_ascii=False).encode()  # half a character has no form in an answer
    return row


def roster_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The holders of a stored session. Raises: VerificationFailed: as `legible`."""
    with legible(row["id"]):
        return tuple(holder["holder"] for holder in row["summary"]["holders"])


def whole_row(connection: Connection, session: str) -> dict[str, Any] | None:
    """A session's row, if there is one. Raises: VerificationFailed: as `legible`."""
    with legible(session):
        return find_row(connection, SESSIONS, {"id": session})


def manifests(connection: Connection, sessions: Collection[str]) -> dict[str, bytes]:
    """The stored manifests of these sessions, of those that have one."""
    found = connection.execute(select(SESSIONS.c.id, SESSIONS.c.manifest).where(SESSIONS.c.id.in_(sessions)))
    return {row.id: row.manifest for row in found if isinstance(row.manifest, bytes)}
