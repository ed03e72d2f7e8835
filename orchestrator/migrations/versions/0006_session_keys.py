"""Every session has a key of its own, which its holders' shares give back. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table. Sessions that are there have no row: their journal and secrets stay under keys of this CVM."""
    op.create_table(
        "session_keys",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("key_check", sa.LargeBinary(), nullable=False),
        sa.Column("digests", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("session"),
    )


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: a session's journal could not be read without its key."""
    remedy = "Let these sessions end and be removed (keep_finished_s), or stay with this version."
    known = "session IN (SELECT id FROM sessions)"
    refuse_loss(op.get_bind(), "session_keys", "keys of sessions", remedy, where=known)
    op.drop_table("session_keys")
