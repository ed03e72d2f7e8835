"""A party's keys have a history: from when to when each counted, and how it came. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table; every enrolled key counts since its enrolment. By whom it was enrolled nobody wrote down."""
    op.create_table(
        "party_keys",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("valid_from", sa.Float(), nullable=False),
        sa.Column("valid_until", sa.Float(), nullable=True),
        sa.Column("came", sa.String(length=8), nullable=False),
        sa.Column("came_by", sa.String(length=63), nullable=False),
        sa.Column("ended_by", sa.String(length=63), nullable=True),
        sa.Column("previous", sa.String(length=64), nullable=True),
        sa.Column("statement", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_index("ix_party_keys_name", "party_keys", ["name"])
    op.execute(
        "INSERT INTO party_keys (fingerprint, name, public_key, valid_from, came, came_by) "
        "SELECT fingerprint, name, public_key, enrolled_at, 'enrolled', '' FROM parties ORDER BY enrolled_at, name"
    )


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: a key that was revoked or given up would count again."""
    remedy = "Stay with this version."
    refuse_loss(op.get_bind(), "party_keys", "which keys count no more", remedy, where="valid_until IS NOT NULL")
    op.drop_table("party_keys")
