"""Sessions that were begun when sealed secrets lay in files go on: the table takes them over. Frozen: later changes are later revisions."""

from __future__ import annotations

from alembic import op

from orchestrator.migrations.sealed_files import take_over
from shared.service.migrations import files_of

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Read the files of sessions that have no row."""
    files = files_of(op.get_context())
    if files is not None:
        take_over(op.get_bind(), files)


def downgrade() -> None:
    """Schema 0003 has the same table."""
