"""Alembic environment of every service: runs on the connection it is given. Knows no URL and no table."""

from alembic import context

config = context.config
context.configure(
    connection=config.attributes["connection"],
    version_table=config.attributes["version_table"],
    # SQLite rolls back DDL as well when the driver lets it: an upgrade happens whole or not at all.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
