"""What is not delivered yet is found by an index. Frozen: later changes are later revisions."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the index: the question is asked every second, and without it every request is read with its bytes."""
    op.create_index(op.f("ix_holder_requests_delivered"), "holder_requests", ["delivered"])


def downgrade() -> None:
    """Remove it."""
    op.drop_index(op.f("ix_holder_requests_delivered"), "holder_requests")
