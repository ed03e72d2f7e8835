"""Alembic revisions of the holder's own tables; run by shared.service.migrations. Knows no query."""
