"""Attestation results: what the orchestrator relied on, as it signed it. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "attestations",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("life", sa.Integer(), nullable=False),
        sa.Column("signing_key", sa.String(length=64), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index(op.f("ix_attestations_session"), "attestations", ["session"], unique=False)


def downgrade() -> None:
    """Remove it. Raises: ConfigurationError: code `downgrade-loses`: there are results, which only this schema can hold."""
    refuse_loss(
        op.get_bind(), "attestations", "the signed attestation results of sessions",
        "Save them (`gput attest session`) and purge those sessions, or stay with this schema.",
    )  # fmt: skip
    op.drop_index(op.f("ix_attestations_session"), table_name="attestations")
    op.drop_table("attestations")
