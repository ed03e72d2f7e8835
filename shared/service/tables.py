"""The tables that the plumbing itself keeps in every service's database. Knows no service's own tables."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

JOURNAL = sa.Table(
    "journal",
    METADATA,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),  # seconds since the epoch; a double comes back bit for bit
    sa.Column("body", sa.Text, nullable=False),  # canonical JSON (RFC 8785)
    sa.Column("chain", sa.LargeBinary(32), nullable=False),
)

REPLAY_NONCES = sa.Table(
    "replay_nonces",
    METADATA,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("nonce", sa.LargeBinary(64), primary_key=True),
    # No index on expires and no rowid: every signed request pays for each tree, a purge is rare and the table small.
    sa.Column("expires", sa.Double, nullable=False),
    sqlite_with_rowid=False,
)

IDEMPOTENT_REPLIES = sa.Table(
    "idempotent_replies",
    METADATA,
    sa.Column("caller", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.LargeBinary(32), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("headers", sa.Text, nullable=False),  # JSON list of [name, value]
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.Double, nullable=False, index=True),
)
