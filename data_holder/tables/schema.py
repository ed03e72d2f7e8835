"""Table definitions, the same for SQLite and PostgreSQL. Knows no query; migrations/ makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, MetaData, String, Table, Text

from data_holder.settings import KEPT_NAME

METADATA = MetaData()


class Bytes(LargeBinary):
    """Bytes, also where a flipped bit has made another type of them: they are judged by what is read as they mean, row by row. What the
    library makes of text, or of a number, is an error for all rows that were asked for."""

    def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], bytes | None]:
        """Of every value that is read."""
        return _as_bytes


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return None if value is None else bytes(value) if isinstance(value, bytes | memoryview) else b""


DATASETS = Table(
    "holder_datasets", METADATA,
    Column("name", String(KEPT_NAME), primary_key=True),
    Column("path", Text, nullable=False),
    Column("options", Text, nullable=False),  # JSON
    Column("source", String(16), nullable=False),  # settings | api | withdrawn
    Column("added_at", Float, nullable=False),  # of one that was withdrawn: since when it is
    Column("mac", Bytes),  # over name, path and options, under a key of the keyring's; None: of before there was one
)  # fmt: skip

REQUESTS = Table(
    "holder_requests", METADATA,
    Column("session", String(32), primary_key=True),
    Column("manifest_digest", String(64), nullable=False),
    Column("manifest", Bytes, nullable=False),  # the exact bytes
    Column("program", Bytes),  # the program manifest's exact bytes; SHA-384 must be manifest.program
    Column("state", String(16), nullable=False, index=True),
    Column("phase", String(24)),
    Column("dataset", String(KEPT_NAME)),
    Column("reason", Text, nullable=False),
    Column("decided_by", String(16)),
    Column("decided_at", Float),
    Column("delivered", Boolean, nullable=False, index=True),
    Column("findings", Text, nullable=False),  # JSON
    Column("waiting_for", String(200)),
    Column("received_at", Float, nullable=False),
)  # fmt: skip

VISITS = Table(
    "holder_visits", METADATA,
    Column("session", String(32), primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("visit", String(32), nullable=False, index=True),
    Column("round", Integer, nullable=False),
    Column("index", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("commitment", String(64)),
    Column("bytes_sent", BigInteger, nullable=False),
    Column("timers", Text),  # JSON
    Column("refusal_code", String(64)),
    Column("refusal_detail", Text),
    Column("at", Float, nullable=False, index=True),
)  # fmt: skip

SHARES = Table(
    "holder_recovery_shares", METADATA,
    Column("session", String(32), primary_key=True),
    Column("sealed", Bytes, nullable=False),
)  # fmt: skip

PURGES = Table(
    "holder_purges", METADATA,
    Column("stream", String(32), primary_key=True),  # a session that is there no more, whose rows are on their way out
    Column("at", Float, nullable=False),
)  # fmt: skip

KEYS = Table(
    "holder_keys", METADATA,
    Column("path", String(16), primary_key=True),  # platform | recovery: whose key opens it
    Column("key", String(16)),  # id of the recovery key, for people; None: the platform's, which has none
    Column("salt", Bytes, nullable=False),
    Column("sealed", Bytes, nullable=False),
)  # fmt: skip

RECEIPTS = Table(
    "holder_receipts", METADATA,
    Column("session", String(32), primary_key=True),
    Column("index", BigInteger, primary_key=True),
    Column("visit", String(32), nullable=False, index=True),
    Column("epoch", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("backend", String(16), nullable=False),
    Column("closed_at", Float, nullable=False),
    Column("cose", Bytes, nullable=False),
    Column("verified", Boolean, nullable=False),
    Column("checks", Text, nullable=False),  # JSON
)  # fmt: skip
