"""Finished sessions leave in small bites. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "holder_purges",
        sa.Column("stream", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: a session is half removed, which nobody would finish."""
    remedy = "Start this version and let it finish: a minute will do."
    refuse_loss(op.get_bind(), "holder_purges", "the note of sessions that are half removed", remedy)
    op.drop_table("holder_purges")
