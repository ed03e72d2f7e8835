"""A holder keeps its shares of sessions' keys. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "holder_recovery_shares",
        sa.Column("session", sa.String(length=32), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session"),
    )


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: a running session might need the share to be recovered."""
    remedy = "Let these sessions end first, or stay with this version."
    live = "session IN (SELECT session FROM holder_requests WHERE state <> 'ended')"
    refuse_loss(
        op.get_bind(), "holder_recovery_shares", "shares of keys of sessions that have not ended", remedy, where=live
    )
    op.drop_table("holder_recovery_shares")
