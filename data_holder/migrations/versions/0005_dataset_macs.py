"""A dataset's row carries a MAC. Frozen: later changes are later revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column. Rows of before have none and get none: nobody can tell whether they are still what the operator wrote."""
    op.add_column("holder_datasets", sa.Column("mac", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Remove it: a release of before believes every row."""
    op.drop_column("holder_datasets", "mac")
