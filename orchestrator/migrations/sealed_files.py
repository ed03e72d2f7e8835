"""Sealed secrets of sessions between table and files: up to schema 0002 they lay in files, from 0003 on in a table. Knows no key.

The bytes are the same in both places and are copied as they are. The files are left where they are: once the table has a session's
secrets, no file of that session is read any more.
"""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.files import write_atomically

MAX_BYTES = 4096
_ID = re.compile(r"[a-z]_[a-z0-9]+", re.IGNORECASE)
_MISSING = sa.text("SELECT id FROM sessions WHERE id NOT IN (SELECT session FROM session_secrets) ORDER BY id")
_INSERT = sa.text("INSERT INTO session_secrets (session, sealed) VALUES (:session, :sealed)")
_ALL = sa.text("SELECT session, sealed FROM session_secrets ORDER BY session")


def _file(files: Path, session: str) -> Path:
    if not _ID.fullmatch(session):  # it comes from the platform's disk and becomes a path
        raise ValueError(f"{session!r} is no session's id")
    return files / "sessions" / session / "secrets.sealed"


def take_over(connection: Connection, files: Path) -> None:
    """Into the table, for each session that has a file and no row."""
    for session in list(connection.execute(_MISSING).scalars()):
        path = _file(files, session)
        if path.is_file() and path.stat().st_size <= MAX_BYTES:
            connection.execute(_INSERT, {"session": session, "sealed": path.read_bytes()})


def hand_back(connection: Connection, files: Path) -> None:
    """Out of the table into files, over what lies there."""
    for row in connection.execute(_ALL):
        write_atomically(_file(files, row.session), bytes(row.sealed))
