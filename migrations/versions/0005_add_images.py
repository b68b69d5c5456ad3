"""Add images, which request wants which, and their copies on hosts.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
NAME = sa.String(length=63).with_variant(sa.String(length=63, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "images",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("format", sa.String(length=8), nullable=False),
        sa.Column("seed_kind", sa.String(length=16), nullable=False),
        sa.Column("min_memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger()),
        sa.Column("virtual_size_bytes", sa.BigInteger()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("claim_token", sa.Uuid()),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("removed_at", TIME),
        sa.CheckConstraint(
            "state IN ('importing', 'ready', 'failed', 'removed')",
            name=op.f("ck_images_state_known"),
        ),
        sa.CheckConstraint("format IN ('qcow2', 'raw')", name=op.f("ck_images_format_known")),
        sa.CheckConstraint(
            "seed_kind IN ('none', 'nocloud')", name=op.f("ck_images_seed_kind_known")
        ),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_images_sha256_whole")),
        sa.CheckConstraint(
            "revision >= 1 AND min_memory_mib >= 0", name=op.f("ck_images_amounts_not_negative")
        ),
        sa.CheckConstraint(
            "state <> 'ready' OR (size_bytes >= 1 AND virtual_size_bytes >= 1)",
            name=op.f("ck_images_sizes_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("name", "revision", name=op.f("uq_images_name_revision")),
    )
    op.create_index(op.f("ix_images_state"), "images", ["state"], unique=False)

    op.create_table(
        "request_images",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("image_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_images_request_id_requests")
        ),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_request_images_image_id_images")
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_images")),
    )
    op.create_index(
        op.f("ix_request_images_image_id"), "request_images", ["image_id"], unique=False
    )

    op.create_table(
        "image_copies",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("image_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("disk_gib", sa.BigInteger(), nullable=False),
        sa.Column("volume", sa.Text()),
        sa.Column("uploaded_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("interruptions", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("claim_token", sa.Uuid()),
        sa.Column("claim_owner", sa.Text()),
        sa.Column("claim_until", TIME),
        sa.Column("sent_at", TIME),
        sa.Column("present_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.CheckConstraint(
            "state IN ('absent', 'uploading', 'present', 'failed', 'removing')",
            name=op.f("ck_image_copies_state_known"),
        ),
        sa.CheckConstraint(
            "disk_gib >= 1 AND uploaded_bytes >= 0",
            name=op.f("ck_image_copies_amounts_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["host_id"], ["hosts.id"], name=op.f("fk_image_copies_host_id_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_copies_image_id_images")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_copies")),
        sa.UniqueConstraint("host_id", "image_id", name=op.f("uq_image_copies_host_id_image_id")),
    )
    op.create_index(op.f("ix_image_copies_image_id"), "image_copies", ["image_id"], unique=False)
    op.create_index(op.f("ix_image_copies_state"), "image_copies", ["state"], unique=False)
