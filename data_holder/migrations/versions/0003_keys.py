"""The keys of what a holder keeps, sealed. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table, unless it is still there from before somebody went back."""
    if sa.inspect(op.get_bind()).has_table("holder_keys"):
        return
    op.create_table(
        "holder_keys",
        sa.Column("path", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=16), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("path"),
    )


def downgrade() -> None:
    """Remove it where it opens nothing. Else it stays: schema 0002 does not look at it, and no newer release could do without."""
    if not op.get_bind().execute(sa.text("SELECT count(*) FROM journal")).scalar():
        op.drop_table("holder_keys")
