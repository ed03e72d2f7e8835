"""Who fetched a session's finished model is written down. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table. Of what was fetched before nothing is known."""
    op.create_table(
        "model_fetches",
        sa.Column("stream", sa.String(length=18), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "seq"),
    )


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: who fetched which model would be forgotten."""
    remedy = "Keep what `gput session fetches` shows, and let these sessions be removed (keep_finished_s); or stay with this version."
    known = "stream IN (SELECT id FROM sessions)"
    refuse_loss(op.get_bind(), "model_fetches", "who fetched finished models", remedy, where=known)
    op.drop_table("model_fetches")
