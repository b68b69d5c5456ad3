"""Keep closed months of usage and their corrections, in rows that do not change.

Revision ID: 0077
Revises: 0076
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0077"
down_revision = "0076"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
# SQLite would store a number with a fraction as a float.
PRICE = sa.Numeric(27, 15).with_variant(sa.String(29), "sqlite")
COST = sa.Numeric(40, 6).with_variant(sa.String(42), "sqlite")

SQLITE = {
    "closed_usage_is_immutable": """
        BEFORE UPDATE ON closed_usage
        WHEN OLD.signature IS NOT NULL OR NEW.number <> OLD.number OR NEW.kind <> OLD.kind
          OR NEW.month <> OLD.month OR NEW.currency IS NOT OLD.currency
          OR NEW.minor_digits IS NOT OLD.minor_digits OR NEW.author <> OLD.author
          OR NEW.reason IS NOT OLD.reason OR NEW.created_at <> OLD.created_at
          OR NEW.salt <> OLD.salt OR NEW.previous <> OLD.previous OR NEW.content <> OLD.content
          OR NEW.link <> OLD.link
        BEGIN
            SELECT raise(ABORT, 'ledger: a closed month is immutable; it can be corrected');
        END""",
    "closed_usage_is_kept": """
        BEFORE DELETE ON closed_usage
        BEGIN
            SELECT raise(ABORT, 'ledger: a closed month is kept');
        END""",
    "closed_usage_follows": """
        BEFORE INSERT ON closed_usage
        WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM closed_usage)
        BEGIN
            SELECT raise(ABORT, 'ledger: entries of closed months are numbered in order');
        END""",
    "closed_usage_lines_are_immutable": """
        BEFORE UPDATE ON closed_usage_lines
        BEGIN
            SELECT raise(ABORT, 'ledger: a closed month is immutable; it can be corrected');
        END""",
    "closed_usage_lines_are_kept": """
        BEFORE DELETE ON closed_usage_lines
        BEGIN
            SELECT raise(ABORT, 'ledger: a closed month is kept');
        END""",
    "closed_usage_lines_are_of_the_last": """
        BEFORE INSERT ON closed_usage_lines
        BEGIN
            SELECT raise(ABORT, 'ledger: that line of a closed month exists already')
            WHERE EXISTS (
                SELECT 1 FROM closed_usage_lines
                WHERE entry = NEW.entry AND position = NEW.position);
            SELECT raise(ABORT, 'ledger: a closed month is immutable; it can be corrected')
            WHERE NEW.entry <> (SELECT max(number) FROM closed_usage);
        END""",
}
POSTGRESQL = {
    "closed_usage_is_immutable": """
        BEFORE UPDATE ON closed_usage FOR EACH ROW
        WHEN (OLD.signature IS NOT NULL OR (NEW.number, NEW.kind, NEW.month, NEW.currency,
            NEW.minor_digits, NEW.author, NEW.reason, NEW.created_at, NEW.salt, NEW.previous,
            NEW.content, NEW.link) IS DISTINCT FROM (OLD.number, OLD.kind, OLD.month, OLD.currency,
            OLD.minor_digits, OLD.author, OLD.reason, OLD.created_at, OLD.salt, OLD.previous,
            OLD.content, OLD.link))
        EXECUTE FUNCTION ledger_refuse('a closed month is immutable; it can be corrected')""",
    "closed_usage_is_kept": """
        BEFORE DELETE ON closed_usage FOR EACH ROW
        EXECUTE FUNCTION ledger_refuse('a closed month is kept')""",
    "closed_usage_is_not_emptied": """
        BEFORE TRUNCATE ON closed_usage FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('a closed month is kept')""",
    "closed_usage_lines_are_immutable": """
        BEFORE UPDATE ON closed_usage_lines FOR EACH ROW
        EXECUTE FUNCTION ledger_refuse('a closed month is immutable; it can be corrected')""",
    "closed_usage_lines_are_kept": """
        BEFORE DELETE ON closed_usage_lines FOR EACH ROW
        EXECUTE FUNCTION ledger_refuse('a closed month is kept')""",
    "closed_usage_lines_are_not_emptied": """
        BEFORE TRUNCATE ON closed_usage_lines FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('a closed month is kept')""",
}


def upgrade() -> None:
    op.create_table(
        "closed_usage",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column("currency", sa.String(16)),
        sa.Column("minor_digits", sa.Integer()),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("link", sa.String(64), nullable=False),
        sa.Column("signed_by", sa.String(64)),
        sa.Column("signature", sa.String(128)),
    )
    where = sa.text("kind = 'month'")
    op.create_index(
        "uq_closed_usage_closed_once",
        "closed_usage",
        ["month"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_table(
        "closed_usage_lines",
        sa.Column("entry", sa.BigInteger(), sa.ForeignKey("closed_usage.number"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("vm_type", NAME),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("held_s", sa.BigInteger(), nullable=False),
        sa.Column("held_us", sa.BigInteger(), nullable=False),
        sa.Column("charged_s", sa.BigInteger(), nullable=False),
        sa.Column("charged_us", sa.BigInteger(), nullable=False),
        sa.Column("price", PRICE),
        sa.Column("price_since", sa.Date()),
        sa.Column("cost", COST),
    )
    op.create_index(
        op.f("ix_closed_usage_lines_tenant_id_entry"), "closed_usage_lines", ["tenant_id", "entry"]
    )
    connection = op.get_bind()
    triggers = SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL
    for name, body in triggers.items():
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {body.strip()}")
