"""Seed the resources that every host has.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    resources = sa.table("resources", sa.column("name"), sa.column("unit"), sa.column("position"))
    op.bulk_insert(
        resources,
        [
            {"name": "vcpus", "unit": "vCPU", "position": 0},
            {"name": "memory_mib", "unit": "MiB", "position": 1},
            {"name": "disk_gib", "unit": "GiB", "position": 2},
        ],
    )
