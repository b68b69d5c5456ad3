"""Let triggers alone prove what amounts refer to, where foreign keys did it a second time.

`ledger_commit` locks the assignments and inventories of amounts that are added and
refuses those that are not there, in one statement for all of them; on PostgreSQL two
foreign keys asked the same of each row again. Amounts never change, and neither do
the keys that they refer to. What was left to the foreign keys alone, that nobody
deletes an assignment or an inventory under its amounts, is refused by triggers now.

SQLite keeps its foreign keys: there a row can be replaced without a delete. They are
off at most prompts, though, and the triggers are not.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

SQLITE = {
    "ledger_assignment_outlives_amounts": """
        BEFORE DELETE ON assignments
        WHEN EXISTS (SELECT 1 FROM assignment_resources WHERE assignment_id = OLD.id)
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment stays as long as its amounts');
        END""",
    "ledger_inventory_outlives_amounts": """
        BEFORE DELETE ON inventories
        WHEN EXISTS (
            SELECT 1 FROM assignment_resources
            WHERE host_id = OLD.host_id AND resource = OLD.resource)
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory stays as long as amounts of it');
        END""",
}

# By name: the table whose rows are deleted, how amounts refer to them, what is said.
POSTGRESQL = {
    "ledger_assignment_outlives_amounts": (
        "assignments",
        "held.assignment_id = gone.id",
        "an assignment stays as long as its amounts",
    ),
    "ledger_inventory_outlives_amounts": (
        "inventories",
        "held.host_id = gone.host_id AND held.resource = gone.resource",
        "an inventory stays as long as amounts of it",
    ),
}
FOREIGN_KEYS = (
    "fk_assignment_resources_assignment_id_host_id_assignments",
    "fk_assignment_resources_host_id_resource_inventories",
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name, body in SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {body.strip()}")
        return
    for name, (table, refers, said) in POSTGRESQL.items():
        op.execute(f"""
            CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql
            SET enable_seqscan = off SET jit = off AS $$
            BEGIN
                IF EXISTS (
                    SELECT 1 FROM gone JOIN assignment_resources AS held ON {refers}) THEN
                    RAISE EXCEPTION 'ledger: {said}'
                        USING ERRCODE = 'integrity_constraint_violation';
                END IF;
                RETURN NULL;
            END;$$""")  # noqa: S608
        op.execute(
            f"CREATE TRIGGER {name} AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
        )
    for name in FOREIGN_KEYS:
        op.drop_constraint(name, "assignment_resources", type_="foreignkey")
