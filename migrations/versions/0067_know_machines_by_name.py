"""Store the names of machines, which distinguish machines that report the same UUID.

Revision ID: 0067
Revises: 0066
"""

from __future__ import annotations

import contextlib
import ipaddress

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_LABEL = "machine="
_MOST = 255
_IS_KNOWN = sa.text("machine_uuid IS NOT NULL")


def upgrade() -> None:
    op.add_column("hosts", sa.Column("machine_label", sa.String(128)))
    op.add_column("hosts", sa.Column("machine_name", sa.String(255)))
    op.add_column("hosts", sa.Column("found_machine_name", sa.String(255)))
    _keep_labels()
    _keep_names()
    op.drop_index("ix_hosts_machine_uuid", "hosts")
    for name in ("machine_label", "machine_name"):
        op.create_index(
            f"ix_hosts_{name}",
            "hosts",
            ["machine_uuid", name],
            sqlite_where=_IS_KNOWN,
            postgresql_where=_IS_KNOWN,
        )


def _keep_labels() -> None:
    """Store the machine names in the labels of hosts."""
    hosts = sa.table(
        "hosts",
        sa.column("id", sa.Uuid()),
        sa.column("labels", JSON),
        sa.column("machine_label", sa.String()),
    )
    connection = op.get_bind()
    rows = connection.execute(
        sa.select(hosts.c.id, hosts.c.labels).where(
            sa.cast(hosts.c.labels, sa.Text()).like(f"%{_LABEL}%")
        )
    ).all()
    for row in rows:
        found = [each.removeprefix(_LABEL) for each in row.labels if each.startswith(_LABEL)]
        if found:
            change = sa.update(hosts).where(hosts.c.id == row.id)
            connection.execute(change.values(machine_label=found[0]))


def _keep_names() -> None:
    """Store machines' names from the last reports, as labels alone prove nothing."""
    hosts = sa.table(
        "hosts",
        sa.column("id", sa.Uuid()),
        sa.column("machine_uuid", sa.String()),
        sa.column("machine_name", sa.String()),
    )
    reports = sa.table("host_reports", sa.column("host_id", sa.Uuid()), sa.column("report", JSON))
    connection = op.get_bind()
    hostname = reports.c.report["hostname"].as_string().label("hostname")
    known = sa.select(hosts.c.id, hostname).join(reports, reports.c.host_id == hosts.c.id)
    rows = connection.execute(known.where(hosts.c.machine_uuid.is_not(None))).all()
    changes = [
        {"its_id": row.id, "its_name": name}
        for row in rows
        if (name := _without_domain(row.hostname or "")) is not None
    ]
    if changes:
        change = sa.update(hosts).where(hosts.c.id == sa.bindparam("its_id"))
        connection.execute(change.values(machine_name=sa.bindparam("its_name")), changes)


def _without_domain(hostname: str) -> str | None:
    name = hostname.strip().rstrip(".").casefold()  # which may have more characters
    if name.rpartition(".")[2].isdigit() or ":" in name:
        with contextlib.suppress(ValueError):
            name = str(ipaddress.ip_address(name))
        return name[:_MOST]
    return name.partition(".")[0][:_MOST] or None
