"""Finished sessions leave in small bites, and a holder finds its receipts among all. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create table and index."""
    op.create_table(
        "purges",
        sa.Column("stream", sa.String(length=18), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )
    op.create_index("leaves_by_holder", "log_leaves", ["session", "holder", "idx"])


def downgrade() -> None:
    """Remove them. Raises: ConfigurationError: code `downgrade-loses`: a session is half removed, which nobody would finish."""
    remedy = "Start this version and let it finish: a minute will do."
    refuse_loss(op.get_bind(), "purges", "the note of sessions that are half removed", remedy)
    op.drop_index("leaves_by_holder", table_name="log_leaves")
    op.drop_table("purges")
