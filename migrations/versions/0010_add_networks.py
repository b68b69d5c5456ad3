"""Add networks, what hosts call them, and the addresses of VMs; VMs of before have no MAC here.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("kind", sa.String(length=16)),
        sa.Column("source", sa.Text()),
        sa.Column("cidr", sa.String(length=18)),
        sa.Column("gateway", sa.String(length=15)),
        sa.Column("dns", JSON, nullable=False),
        sa.Column("excluded", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint("kind IN ('network', 'bridge')", name=op.f("ck_networks_kind_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("name", name=op.f("uq_networks_name")),
    )
    op.create_table(
        "network_hosts",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('network', 'bridge')", name=op.f("ck_network_hosts_kind_known")
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_network_hosts_network_id_networks")
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_network_hosts_host_id_hosts")
        ),
        sa.PrimaryKeyConstraint("network_id", "host_id", name=op.f("pk_network_hosts")),
    )
    op.create_table(
        "request_networks",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_networks_request_id_requests")
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_request_networks_network_id_networks")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_networks")),
    )
    op.create_index(op.f("ix_request_networks_network_id"), "request_networks", ["network_id"])
    op.create_table(
        "interfaces",
        sa.Column("vm_id", sa.Uuid(), nullable=False),
        sa.Column("mac", sa.String(length=17), nullable=False),
        sa.Column("network_id", sa.Uuid()),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_interfaces_vm_id_vms")),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_interfaces_network_id_networks")
        ),
        sa.PrimaryKeyConstraint("vm_id", name=op.f("pk_interfaces")),
        sa.UniqueConstraint("mac", name=op.f("uq_interfaces_mac")),
    )
    op.create_index(op.f("ix_interfaces_network_id"), "interfaces", ["network_id"])
    op.create_table(
        "network_addresses",
        sa.Column("network_id", sa.Uuid(), nullable=False),
        sa.Column("address", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vm_id", sa.Uuid()),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_network_addresses_network_id_networks")
        ),
        sa.ForeignKeyConstraint(["vm_id"], ["vms.id"], name=op.f("fk_network_addresses_vm_id_vms")),
        sa.PrimaryKeyConstraint("network_id", "address", name=op.f("pk_network_addresses")),
        sa.UniqueConstraint("vm_id", name=op.f("uq_network_addresses_vm_id")),
    )
