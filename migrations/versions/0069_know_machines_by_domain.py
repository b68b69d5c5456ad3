"""Keep the domains in machines' names: of one UUID, two may share the name before the first dot.

Revision ID: 0069
Revises: 0068
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_MOST = 255


def upgrade() -> None:
    op.add_column("hosts", sa.Column("machine_domain", sa.String(_MOST)))
    _keep_domains()


def _keep_domains() -> None:
    """Store the domains from the last reports, as they distinguish machines of one name."""
    hosts = sa.table(
        "hosts",
        sa.column("id", sa.Uuid()),
        sa.column("machine_name", sa.String()),
        sa.column("machine_domain", sa.String()),
    )
    reports = sa.table("host_reports", sa.column("host_id", sa.Uuid()), sa.column("report", JSON))
    connection = op.get_bind()
    hostname = reports.c.report["hostname"].as_string().label("hostname")
    known = sa.select(hosts.c.id, hosts.c.machine_name, hostname).join(
        reports, reports.c.host_id == hosts.c.id
    )
    changes = []
    for row in connection.execute(known.where(hosts.c.machine_name.is_not(None))).all():
        name, _, domain = (row.hostname or "").strip().rstrip(".").casefold().partition(".")
        if domain and name[:_MOST] == row.machine_name:
            changes.append({"its_id": row.id, "its_domain": domain[:_MOST]})
    if changes:
        change = sa.update(hosts).where(hosts.c.id == sa.bindparam("its_id"))
        connection.execute(change.values(machine_domain=sa.bindparam("its_domain")), changes)
