"""Store why cloud-init will ignore user data, as the content is deleted with its request.

Revision ID: 0068
Revises: 0067
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("request_access", sa.Column("user_data_ignored", sa.Text()))
