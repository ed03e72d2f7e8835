"""Journal, replay nonces, idempotent replies."""

import sqlalchemy as sa
from alembic import op

from shared.service.migrations import refuse_loss

revision = "shared_0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "journal",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
    )
    op.create_table(
        "replay_nonces",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("nonce", sa.LargeBinary(64), primary_key=True),
        sa.Column("expires", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotent_replies",
        sa.Column("caller", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("request_digest", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.Double, nullable=False, index=True),
    )


def downgrade() -> None:
    refuse_loss(op.get_bind(), "journal", "all sessions", "Delete the database itself, if that is what is wanted.")
    op.drop_table("idempotent_replies")
    op.drop_table("replay_nonces")
    op.drop_table("journal")
