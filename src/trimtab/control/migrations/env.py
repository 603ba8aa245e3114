"""Takes the steps on the connection that it is handed, inside that connection's transaction."""

from __future__ import annotations

from alembic import context

from trimtab.control.store import SCHEMA_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=SCHEMA_TABLE,
    transactional_ddl=True,  # SQLite can, too
)
context.run_migrations()
