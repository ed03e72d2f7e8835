"""A session that its owner removes waits until its holders have what is theirs. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables. Who heard of an end before nobody wrote down: holders say it again when they are told again."""
    op.create_table(
        "removals",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("asked_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("session"),
    )
    op.create_table(
        "ends_heard",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("holder", sa.String(length=63), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("session", "holder"),
    )


def downgrade() -> None:
    """Remove them. Raises: ConfigurationError: code `downgrade-loses`: a session that its owner wants gone would stay."""
    remedy = "Start this version until they are gone; with keep_removed_s = 0, that is with its first sweep."
    refuse_loss(op.get_bind(), "removals", "which sessions their owners removed", remedy)
    op.drop_table("ends_heard")
    op.drop_table("removals")
