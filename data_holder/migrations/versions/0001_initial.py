"""First schema: datasets, requests, visits, receipts. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Create every table of the first version."""
    _datasets_and_requests()
    _visits()
    op.create_table(
        "holder_receipts",
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("index", sa.BigInteger, primary_key=True),
        sa.Column("visit", sa.String(32), nullable=False, index=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("backend", sa.String(16), nullable=False),
        sa.Column("closed_at", sa.Float, nullable=False),
        sa.Column("cose", sa.LargeBinary, nullable=False),
        sa.Column("verified", sa.Boolean, nullable=False),
        sa.Column("checks", sa.Text, nullable=False),
    )


def _datasets_and_requests() -> None:
    op.create_table(
        "holder_datasets",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("added_at", sa.Float, nullable=False),
    )
    op.create_table(
        "holder_requests",
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("manifest_digest", sa.String(64), nullable=False),
        sa.Column("manifest", sa.LargeBinary, nullable=False),
        sa.Column("program", sa.LargeBinary),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("phase", sa.String(24)),
        sa.Column("dataset", sa.String(64)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("decided_by", sa.String(16)),
        sa.Column("decided_at", sa.Float),
        sa.Column("delivered", sa.Boolean, nullable=False),
        sa.Column("findings", sa.Text, nullable=False),
        sa.Column("waiting_for", sa.String(200)),
        sa.Column("received_at", sa.Float, nullable=False),
    )


def _visits() -> None:
    op.create_table(
        "holder_visits",
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("visit", sa.String(32), nullable=False, index=True),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.Column("commitment", sa.String(64)),
        sa.Column("bytes_sent", sa.BigInteger, nullable=False),
        sa.Column("timers", sa.Text),
        sa.Column("refusal_code", sa.String(64)),
        sa.Column("refusal_detail", sa.Text),
        sa.Column("at", sa.Float, nullable=False, index=True),
    )


def downgrade() -> None:
    """Drop them all. Raises: ConfigurationError: code `downgrade-loses`: a session was decided on."""
    refuse_loss(
        op.get_bind(), "holder_requests", "all sessions", "Delete the database itself, if that is what is wanted."
    )
    for name in ("holder_receipts", "holder_visits", "holder_requests", "holder_datasets"):
        op.drop_table(name)
