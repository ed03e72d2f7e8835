"""First schema of the orchestrator: parties, library, sessions, visits, log. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "approvals",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=63), nullable=False),
        sa.Column("decision", sa.String(length=8), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("session", "number"),
    )
    op.create_table(
        "channels",
        sa.Column("channel", sa.String(length=40), nullable=False),
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("holder", sa.String(length=63), nullable=False),
        sa.Column("life", sa.Integer(), nullable=False),
        sa.Column("boot_counter", sa.Integer(), nullable=False),
        sa.Column("signing_key", sa.String(length=64), nullable=False),
        sa.Column("runtime_data", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("gpu_evidence", sa.JSON(), nullable=False),
        sa.Column("holder_runtime_data", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("channel"),
    )
    op.create_index(op.f("ix_channels_session"), "channels", ["session"], unique=False)
    op.create_table(
        "files",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "digest"),
    )
    op.create_table(
        "log_leaves",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("idx", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sa.Column("visit", sa.String(length=18), nullable=True),
        sa.Column("holder", sa.String(length=63), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("session", "idx"),
    )
    op.create_table(
        "losses",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("visit", sa.String(length=18), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=63), nullable=False),
        sa.Column("loss", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("session", "visit", "step"),
    )
    op.create_table(
        "parties",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("enrolled_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "programs",
        sa.Column("digest", sa.String(length=96), nullable=False),
        sa.Column("archive_sha256", sa.String(length=64), nullable=False),
        sa.Column("archive_bytes", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("stored_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=18), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("owner_key", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("gpu", sa.String(length=63), nullable=False),
        sa.Column("phase", sa.String(length=20), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("number"),
    )
    op.create_table(
        "tree_heads",
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.String(length=64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("signing_key", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("session"),
    )
    op.create_table(
        "visits",
        sa.Column("id", sa.String(length=18), nullable=False),
        sa.Column("session", sa.String(length=18), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=63), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("visits_by_session", "visits", ["session", "number"], unique=True)
    # ### end Alembic commands ###


def downgrade() -> None:
    """Remove them. Raises: ConfigurationError: code `downgrade-loses`: there is a session, a party or a program."""
    for table in ("sessions", "parties", "programs", "files"):
        refuse_loss(op.get_bind(), table, f"all {table}", "Delete the database itself, if that is what is wanted.")
    op.drop_index("visits_by_session", table_name="visits")
    op.drop_table("visits")
    op.drop_table("tree_heads")
    op.drop_table("sessions")
    op.drop_table("programs")
    op.drop_table("parties")
    op.drop_table("losses")
    op.drop_table("log_leaves")
    op.drop_table("files")
    op.drop_index(op.f("ix_channels_session"), table_name="channels")
    op.drop_table("channels")
    op.drop_table("approvals")
    # ### end Alembic commands ###
