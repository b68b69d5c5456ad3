"""Run the revisions on the connection of `registry.admin.upgrade`, in its transaction."""

from __future__ import annotations

from alembic import context

from registry.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite has transactional DDL; its driver gets in the way only when it begins
    # transactions itself, which ours does not.
    transactional_ddl=True,
    compare_type=True,
    compare_server_default=True,
    render_as_batch=True,
)
context.run_migrations()
