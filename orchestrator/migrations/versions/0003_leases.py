"""Who leads, and the sessions' sealed secrets, which must change with the journal. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from orchestrator.migrations.sealed_files import hand_back
from shared.service.migrations import files_of, refuse_loss

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("seal", sa.LargeBinary(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "session_secrets",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session"),
    )


def downgrade() -> None:
    """Remove them, after the sealed secrets were written where schema 0002 looks for them.

    Raises:
        ConfigurationError: code `downgrade-loses`: that cannot be done, or an orchestrator did not let go of its lease.
    """
    files, connection = files_of(op.get_context()), op.get_bind()
    if files is None:
        refuse_loss(
            connection,
            "session_secrets",
            "the sealed secrets of sessions, which belong into files",
            "Name the folder of files.",
        )
    else:
        hand_back(connection, files)
    # What it is for: after a crash only the same release may go on, because no other can read the sessions.
    refuse_loss(
        connection, "leases", "the word of an orchestrator that did not let go of its lease",
        "Start the orchestrator once more and stop it cleanly.", where="expires_at IS NOT NULL",
    )  # fmt: skip
    op.drop_table("session_secrets")
    op.drop_table("leases")
