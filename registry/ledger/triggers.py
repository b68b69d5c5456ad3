"""The ledger's triggers that are in force.

They keep committed capacity, its bound, and the versions of hosts.

No code writes `inventories.committed`. Whatever is done to the tables, by whatever program, it
stays the sum over assignments that are not released and, for disk, volumes with a file there.

SQLite has row triggers. `INSERT OR REPLACE` deletes rows there without firing their delete
triggers; hence the guards on inserts of keys that exist.

PostgreSQL has statement triggers with transition tables where amounts are summed or rows of others
are locked, always in the order of their keys, and row triggers that only refuse. A statement in a
trigger sees what was committed before it began, so each locks in one statement and looks in the
next. Triggers prove what amounts refer to; SQLite also keeps its foreign keys, as a row can be
replaced there without a delete.

Events on PostgreSQL also have the guard of their readers: see `events_hold_readers_back`.

Revisions carry their own text; a test compares the result with the triggers in this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

# The true sum for the inventory row {row}; walks the unreleased assignments of the host, and its
# volumes.
_SUM: Final = """(
    (
        SELECT coalesce(sum(held.amount), 0)
        FROM assignments AS live
        JOIN assignment_resources AS held
          ON held.assignment_id = live.id AND held.resource = {row}.resource
        WHERE live.host_id = {row}.host_id AND live.state <> 'released'
    ) + CASE WHEN {row}.resource = 'disk_gib' THEN (
        SELECT coalesce(sum(size_gib), 0) FROM volumes WHERE host_id = {row}.host_id
    ) ELSE 0 END
)"""

SQLITE: Final[Mapping[str, str]] = {
    # ---- committed capacity ------------------------------------------------
    "ledger_refuse_over_capacity": """
        BEFORE INSERT ON assignment_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment''s amounts are written once')
            WHERE EXISTS (
                SELECT 1 FROM assignment_resources
                WHERE assignment_id = NEW.assignment_id AND resource = NEW.resource);
            SELECT raise(ABORT, 'ledger: amounts belong to an unreleased assignment')
            WHERE NOT EXISTS (
                SELECT 1 FROM assignments
                WHERE id = NEW.assignment_id AND host_id = NEW.host_id AND state <> 'released');
            SELECT raise(ABORT, 'ledger: over capacity')
            WHERE NOT EXISTS (
                SELECT 1 FROM inventories
                WHERE host_id = NEW.host_id AND resource = NEW.resource
                  AND committed + NEW.amount <= capacity);
        END""",
    "ledger_commit": """
        AFTER INSERT ON assignment_resources
        BEGIN
            UPDATE inventories SET committed = committed + NEW.amount
            WHERE host_id = NEW.host_id AND resource = NEW.resource;
        END""",
    "ledger_release": """
        AFTER UPDATE OF state ON assignments
        WHEN OLD.state <> 'released' AND NEW.state = 'released'
        BEGIN
            UPDATE inventories SET committed = committed - (
                SELECT amount FROM assignment_resources
                WHERE assignment_id = NEW.id AND resource = inventories.resource)
            WHERE host_id = NEW.host_id AND resource IN (
                SELECT resource FROM assignment_resources WHERE assignment_id = NEW.id);
        END""",
    "ledger_committed_is_the_sum": f"""
        BEFORE UPDATE OF committed ON inventories
        WHEN NEW.committed <> {_SUM.format(row="NEW")}
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over assignments and volumes');
        END""",
    "ledger_committed_starts_as_the_sum": f"""
        BEFORE INSERT ON inventories
        WHEN NEW.committed <> {_SUM.format(row="NEW")}
        BEGIN
            SELECT raise(ABORT, 'ledger: committed is the sum over assignments and volumes');
        END""",
    "ledger_inventory_stays": """
        BEFORE UPDATE OF host_id, resource ON inventories
        WHEN NEW.host_id <> OLD.host_id OR NEW.resource <> OLD.resource
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory keeps its host and resource');
        END""",
    "ledger_inventory_is_kept": """
        BEFORE DELETE ON inventories WHEN OLD.committed <> 0
        BEGIN
            SELECT raise(ABORT, 'ledger: an inventory with committed capacity stays');
        END""",
    # ---- volumes -----------------------------------------------------------
    "ledger_volume_begins_unplaced": """
        BEFORE INSERT ON volumes
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume begins without a host')
            WHERE NEW.host_id IS NOT NULL;
            SELECT raise(ABORT, 'ledger: that volume exists already')
            WHERE EXISTS (
                SELECT 1 FROM volumes
                WHERE id = NEW.id
                   OR (tenant_id = NEW.tenant_id AND name = NEW.name AND state <> 'removed'));
        END""",
    "ledger_hold_volume": """
        AFTER UPDATE OF host_id, size_gib ON volumes
        WHEN NEW.host_id IS NOT OLD.host_id OR NEW.size_gib <> OLD.size_gib
        BEGIN
            SELECT raise(ABORT, 'ledger: over capacity')
            WHERE NEW.host_id IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM inventories
                WHERE host_id = NEW.host_id AND resource = 'disk_gib'
                  AND committed + NEW.size_gib
                    - CASE WHEN OLD.host_id = NEW.host_id THEN OLD.size_gib ELSE 0 END
                    <= capacity);
            UPDATE inventories SET committed = committed
                + CASE WHEN host_id = NEW.host_id THEN NEW.size_gib ELSE 0 END
                - CASE WHEN host_id = OLD.host_id THEN OLD.size_gib ELSE 0 END
            WHERE host_id IN (OLD.host_id, NEW.host_id) AND resource = 'disk_gib';
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END""",
    "ledger_volume_has_one_vm": """
        BEFORE UPDATE OF assignment_id ON volumes
        WHEN NEW.assignment_id <> OLD.assignment_id
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume is attached to one VM at a time');
        END""",
    "ledger_volume_is_bound_to_one_vm": """
        BEFORE UPDATE OF bound_vm_id, vm_id ON volumes
        WHEN NEW.bound_vm_id <> OLD.bound_vm_id OR NEW.bound_vm_id <> NEW.vm_id
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume is bound to one VM at a time');
        END""",
    "ledger_removed_volume_is_final": """
        BEFORE UPDATE OF state ON volumes WHEN OLD.state = 'removed' AND NEW.state <> 'removed'
        BEGIN
            SELECT raise(ABORT, 'ledger: removed is final');
        END""",
    "ledger_volume_is_kept": """
        BEFORE DELETE ON volumes WHEN OLD.host_id IS NOT NULL
        BEGIN
            SELECT raise(ABORT, 'ledger: a volume with a file stays');
        END""",
    # ---- rows that do not change -------------------------------------------
    "ledger_amounts_are_immutable": """
        BEFORE UPDATE ON assignment_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment''s amounts are immutable');
        END""",
    "ledger_amounts_are_kept": """
        BEFORE DELETE ON assignment_resources
        WHEN EXISTS (
            SELECT 1 FROM assignments WHERE id = OLD.assignment_id AND state <> 'released')
        BEGIN
            SELECT raise(ABORT, 'ledger: the amounts of an unreleased assignment stay');
        END""",
    "ledger_released_is_final": """
        BEFORE UPDATE OF state ON assignments
        WHEN OLD.state = 'released' AND NEW.state <> 'released'
        BEGIN
            SELECT raise(ABORT, 'ledger: released is final');
        END""",
    "ledger_assignment_is_immutable": """
        BEFORE UPDATE OF id, vm_id, host_id, tenant_id, round, generation ON assignments
        WHEN NEW.id <> OLD.id OR NEW.vm_id <> OLD.vm_id OR NEW.host_id <> OLD.host_id
          OR NEW.tenant_id <> OLD.tenant_id OR NEW.round <> OLD.round
          OR NEW.generation <> OLD.generation
        BEGIN
            SELECT raise(ABORT, 'ledger: an assignment keeps its VM, host, round and generation');
        END""",
    "ledger_assignment_is_kept": """
        BEFORE DELETE ON assignments WHEN OLD.state <> 'released'
        BEGIN
            SELECT raise(ABORT, 'ledger: an unreleased assignment stays');
        END""",
    "ledger_one_assignment_per_vm": """
        BEFORE INSERT ON assignments
        BEGIN
            SELECT raise(ABORT, 'ledger: the VM has an unreleased assignment')
            WHERE NEW.state <> 'released' AND EXISTS (
                SELECT 1 FROM assignments
                WHERE vm_id = NEW.vm_id AND state <> 'released'
                  AND (NEW.state <> 'arriving' OR state IN ('arriving', 'leaving'))
                  AND (NEW.state = 'arriving' OR state <> 'leaving'));
            SELECT raise(ABORT, 'ledger: that assignment exists already')
            WHERE EXISTS (
                SELECT 1 FROM assignments
                WHERE id = NEW.id OR (vm_id = NEW.vm_id AND generation = NEW.generation));
        END""",
    "vm_type_is_immutable": """
        BEFORE UPDATE ON vm_type_resources
        BEGIN
            SELECT raise(ABORT, 'ledger: a VM type is immutable; an edit makes a revision');
        END""",
    # ---- closed months -----------------------------------------------------
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
    # ---- versions: whatever can invalidate a placement on the host ---------
    "version_by_assignment": """
        AFTER INSERT ON assignments
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END""",
    "version_by_capacity": """
        AFTER UPDATE ON inventories WHEN NEW.capacity < OLD.capacity
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
        END""",
    "version_by_host": """
        AFTER UPDATE OF admin, health, labels ON hosts
        WHEN NEW.admin <> OLD.admin OR NEW.labels <> OLD.labels
          OR (OLD.health = 'up' AND NEW.health <> 'up')
        BEGIN
            UPDATE hosts SET version = version + 1 WHERE id = NEW.id;
        END""",
    "version_only_rises": """
        BEFORE UPDATE OF version ON hosts WHEN NEW.version < OLD.version
        BEGIN
            SELECT raise(ABORT, 'ledger: the version of a host only rises');
        END""",
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

#: The body of each trigger function, by name.
POSTGRESQL_FUNCTIONS: Final[Mapping[str, str]] = {
    # Raises the given message as an integrity error.
    "ledger_refuse": """
        BEGIN
            RAISE EXCEPTION 'ledger: %', TG_ARGV[0]
                USING ERRCODE = 'integrity_constraint_violation';
        END""",
    # Amounts that were added: refused above capacity, else committed.
    "ledger_commit": """
        DECLARE
            ids uuid[] := (SELECT array_agg(DISTINCT assignment_id) FROM added);
            places uuid[] := (SELECT array_agg(DISTINCT host_id) FROM added);
        BEGIN
            -- A release of one of these assignments waits, or was before us.
            PERFORM 1 FROM assignments WHERE id = ANY (ids) ORDER BY id FOR SHARE;
            IF EXISTS (
                SELECT 1 FROM added LEFT JOIN assignments AS live
                  ON live.id = added.assignment_id AND live.host_id = added.host_id
                 AND live.id = ANY (ids)
                WHERE live.id IS NULL OR live.state = 'released') THEN
                RAISE EXCEPTION 'ledger: amounts belong to an unreleased assignment'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            PERFORM 1 FROM inventories
            WHERE host_id = ANY (places)
              AND (host_id, resource) IN (SELECT host_id, resource FROM added)
            ORDER BY host_id, resource FOR NO KEY UPDATE;
            IF EXISTS (
                SELECT 1 FROM (
                    SELECT host_id, resource, sum(amount) AS amount FROM added
                    GROUP BY host_id, resource) AS taken
                LEFT JOIN inventories AS offered
                  ON offered.host_id = taken.host_id AND offered.resource = taken.resource
                 AND offered.host_id = ANY (places)
                WHERE offered.host_id IS NULL
                   OR offered.committed + taken.amount > offered.capacity) THEN
                RAISE EXCEPTION 'ledger: over capacity'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            UPDATE inventories AS offered SET committed = offered.committed + taken.amount
            FROM (SELECT host_id, resource, sum(amount) AS amount FROM added
                  GROUP BY host_id, resource) AS taken
            WHERE offered.host_id = ANY (places)
              AND offered.host_id = taken.host_id AND offered.resource = taken.resource;
            RETURN NULL;
        END""",
    "ledger_release": """
        DECLARE
            ids uuid[] := (
                SELECT array_agg(id) FROM after JOIN before USING (id)
                WHERE before.state <> 'released' AND after.state = 'released');
        BEGIN
            IF ids IS NULL THEN
                RETURN NULL;
            END IF;
            PERFORM 1 FROM inventories
            WHERE (host_id, resource) IN (
                SELECT host_id, resource FROM assignment_resources WHERE assignment_id = ANY (ids))
            ORDER BY host_id, resource FOR NO KEY UPDATE;
            UPDATE inventories AS offered SET committed = offered.committed - freed.amount
            FROM (SELECT host_id, resource, sum(amount) AS amount FROM assignment_resources
                  WHERE assignment_id = ANY (ids) GROUP BY host_id, resource) AS freed
            WHERE offered.host_id = freed.host_id AND offered.resource = freed.resource;
            RETURN NULL;
        END""",
    "ledger_committed_is_the_sum": f"""
        BEGIN
            IF EXISTS (
                SELECT 1 FROM after JOIN before USING (host_id, resource)
                WHERE after.committed <> before.committed
                  AND after.committed <> {_SUM.format(row="after")}) THEN
                RAISE EXCEPTION
                    'ledger: committed is the sum over assignments and volumes'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",  # noqa: S608
    # A volume's file was placed on a host, grew, or is gone: its host's inventory follows.
    "ledger_hold_volume": """
        BEGIN
            PERFORM 1 FROM hosts WHERE id IN (OLD.host_id, NEW.host_id)
            ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = NEW.host_id;
            PERFORM 1 FROM inventories
            WHERE host_id IN (OLD.host_id, NEW.host_id) AND resource = 'disk_gib'
            ORDER BY host_id FOR NO KEY UPDATE;
            UPDATE inventories SET committed = committed - OLD.size_gib
            WHERE host_id = OLD.host_id AND resource = 'disk_gib';
            UPDATE inventories SET committed = committed + NEW.size_gib
            WHERE host_id = NEW.host_id AND resource = 'disk_gib'
              AND committed + NEW.size_gib <= capacity;
            IF NEW.host_id IS NOT NULL AND NOT FOUND THEN
                RAISE EXCEPTION 'ledger: over capacity'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",
    # Amounts that were deleted: of released assignments, which no longer count.
    "ledger_amounts_are_kept": """
        BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignments AS live ON live.id = gone.assignment_id
                WHERE live.state <> 'released') THEN
                RAISE EXCEPTION 'ledger: the amounts of an unreleased assignment stay'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",
    "version_by_assignment": """
        DECLARE
            places uuid[] := (SELECT array_agg(DISTINCT host_id) FROM added);
        BEGIN
            PERFORM 1 FROM hosts WHERE id = ANY (places) ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = ANY (places);
            RETURN NULL;
        END""",
    "version_by_capacity": """
        DECLARE
            places uuid[] := (
                SELECT array_agg(DISTINCT host_id)
                FROM after JOIN before USING (host_id, resource)
                WHERE after.capacity < before.capacity);
        BEGIN
            IF places IS NULL THEN
                RETURN NULL;
            END IF;
            PERFORM 1 FROM hosts WHERE id = ANY (places) ORDER BY id FOR NO KEY UPDATE;
            UPDATE hosts SET version = version + 1 WHERE id = ANY (places);
            RETURN NULL;
        END""",
    "version_by_host": """
        BEGIN
            NEW.version := greatest(NEW.version, OLD.version + 1);
            RETURN NEW;
        END""",
    "ledger_assignment_outlives_amounts": """
        BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignment_resources AS held
                  ON held.assignment_id = gone.id) THEN
                RAISE EXCEPTION 'ledger: an assignment stays as long as its amounts'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",
    "ledger_inventory_outlives_amounts": """
        BEGIN
            IF EXISTS (
                SELECT 1 FROM gone JOIN assignment_resources AS held
                  ON held.host_id = gone.host_id AND held.resource = gone.resource) THEN
                RAISE EXCEPTION 'ledger: an inventory stays as long as amounts of it'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END""",
    # Ids are given before transactions commit, in another order. A transaction that adds
    # events holds, until its end, a lock whose key is its first id: a reader
    # that tails stops below the lowest (`registry.audit.events`).
    "events_hold_readers_back": """
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(
                (26485::bigint << 48) | coalesce(pg_sequence_last_value('events_id_seq'), 0));
            RETURN NULL;
        END""",
}

_SUMS: Final = "REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT"
POSTGRESQL: Final[Mapping[str, str]] = {
    # ---- committed capacity ------------------------------------------------
    "ledger_commit": """
        AFTER INSERT ON assignment_resources REFERENCING NEW TABLE AS added FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_commit()""",
    "ledger_release": f"""
        AFTER UPDATE ON assignments {_SUMS} EXECUTE FUNCTION ledger_release()""",
    "ledger_committed_is_the_sum": f"""
        AFTER UPDATE ON inventories {_SUMS}
        WHEN (pg_trigger_depth() = 0) -- not where the triggers above count
        EXECUTE FUNCTION ledger_committed_is_the_sum()""",
    "ledger_committed_starts_as_the_sum": """
        BEFORE INSERT ON inventories FOR EACH ROW WHEN (NEW.committed <> 0)
        EXECUTE FUNCTION ledger_refuse('committed is the sum over assignments and volumes')""",
    "ledger_inventory_stays": """
        BEFORE UPDATE ON inventories FOR EACH ROW
        WHEN (NEW.host_id <> OLD.host_id OR NEW.resource <> OLD.resource)
        EXECUTE FUNCTION ledger_refuse('an inventory keeps its host and resource')""",
    "ledger_inventory_is_kept": """
        BEFORE DELETE ON inventories FOR EACH ROW WHEN (OLD.committed <> 0)
        EXECUTE FUNCTION ledger_refuse('an inventory with committed capacity stays')""",
    "ledger_assignment_outlives_amounts": """
        AFTER DELETE ON assignments REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_assignment_outlives_amounts()""",
    "ledger_inventory_outlives_amounts": """
        AFTER DELETE ON inventories REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_inventory_outlives_amounts()""",
    # ---- volumes -----------------------------------------------------------
    "ledger_volume_begins_unplaced": """
        BEFORE INSERT ON volumes FOR EACH ROW WHEN (NEW.host_id IS NOT NULL)
        EXECUTE FUNCTION ledger_refuse('a volume begins without a host')""",
    "ledger_hold_volume": """
        AFTER UPDATE ON volumes FOR EACH ROW
        WHEN (NEW.host_id IS DISTINCT FROM OLD.host_id OR NEW.size_gib <> OLD.size_gib)
        EXECUTE FUNCTION ledger_hold_volume()""",
    "ledger_volume_has_one_vm": """
        BEFORE UPDATE ON volumes FOR EACH ROW WHEN (NEW.assignment_id <> OLD.assignment_id)
        EXECUTE FUNCTION ledger_refuse('a volume is attached to one VM at a time')""",
    "ledger_volume_is_bound_to_one_vm": """
        BEFORE UPDATE ON volumes FOR EACH ROW
        WHEN (NEW.bound_vm_id <> OLD.bound_vm_id OR NEW.bound_vm_id <> NEW.vm_id)
        EXECUTE FUNCTION ledger_refuse('a volume is bound to one VM at a time')""",
    "ledger_removed_volume_is_final": """
        BEFORE UPDATE ON volumes FOR EACH ROW
        WHEN (OLD.state = 'removed' AND NEW.state <> 'removed')
        EXECUTE FUNCTION ledger_refuse('removed is final')""",
    "ledger_volume_is_kept": """
        BEFORE DELETE ON volumes FOR EACH ROW WHEN (OLD.host_id IS NOT NULL)
        EXECUTE FUNCTION ledger_refuse('a volume with a file stays')""",
    "ledger_volumes_are_not_emptied": """
        BEFORE TRUNCATE ON volumes FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('volumes are not emptied')""",
    # ---- rows that do not change -------------------------------------------
    "ledger_amounts_are_immutable": """
        BEFORE UPDATE ON assignment_resources FOR EACH ROW
        EXECUTE FUNCTION ledger_refuse('an assignment''s amounts are immutable')""",
    "ledger_amounts_are_kept": """
        AFTER DELETE ON assignment_resources REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_amounts_are_kept()""",
    "ledger_released_is_final": """
        BEFORE UPDATE ON assignments FOR EACH ROW
        WHEN (OLD.state = 'released' AND NEW.state <> 'released')
        EXECUTE FUNCTION ledger_refuse('released is final')""",
    "ledger_assignment_is_immutable": """
        BEFORE UPDATE ON assignments FOR EACH ROW
        WHEN (NEW.id <> OLD.id OR NEW.vm_id <> OLD.vm_id OR NEW.host_id <> OLD.host_id
          OR NEW.tenant_id <> OLD.tenant_id OR NEW.round <> OLD.round
          OR NEW.generation <> OLD.generation)
        EXECUTE FUNCTION
            ledger_refuse('an assignment keeps its VM, host, round and generation')""",
    "ledger_assignment_is_kept": """
        BEFORE DELETE ON assignments FOR EACH ROW WHEN (OLD.state <> 'released')
        EXECUTE FUNCTION ledger_refuse('an unreleased assignment stays')""",
    "vm_type_is_immutable": """
        BEFORE UPDATE ON vm_type_resources FOR EACH ROW
        EXECUTE FUNCTION ledger_refuse('a VM type is immutable; an edit makes a revision')""",
    "ledger_inventories_are_not_emptied": """
        BEFORE TRUNCATE ON inventories FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('inventories are not emptied')""",
    "ledger_assignments_are_not_emptied": """
        BEFORE TRUNCATE ON assignments FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('assignments are not emptied')""",
    "ledger_amounts_are_not_emptied": """
        BEFORE TRUNCATE ON assignment_resources FOR EACH STATEMENT
        EXECUTE FUNCTION ledger_refuse('amounts are not emptied')""",
    # ---- closed months -----------------------------------------------------
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
    # ---- versions: whatever can invalidate a placement on the host ---------
    "version_by_assignment": """
        AFTER INSERT ON assignments REFERENCING NEW TABLE AS added FOR EACH STATEMENT
        EXECUTE FUNCTION version_by_assignment()""",
    "version_by_capacity": f"""
        AFTER UPDATE ON inventories {_SUMS} EXECUTE FUNCTION version_by_capacity()""",
    "version_by_host": """
        BEFORE UPDATE ON hosts FOR EACH ROW
        WHEN (NEW.admin <> OLD.admin OR NEW.labels <> OLD.labels
          OR (OLD.health = 'up' AND NEW.health <> 'up'))
        EXECUTE FUNCTION version_by_host()""",
    "version_only_rises": """
        BEFORE UPDATE ON hosts FOR EACH ROW WHEN (NEW.version < OLD.version)
        EXECUTE FUNCTION ledger_refuse('the version of a host only rises')""",
    # ---- readers of events that tail ---------------------------------------
    "events_hold_readers_back": """
        BEFORE INSERT ON events FOR EACH STATEMENT
        EXECUTE FUNCTION events_hold_readers_back()""",
}

#: The triggers by dialect. Only SQLite has INSERT OR REPLACE; only PostgreSQL has TRUNCATE and
#: assigns ids before a commit.
TRIGGERS: Final[Mapping[str, Mapping[str, str]]] = {"sqlite": SQLITE, "postgresql": POSTGRESQL}


def trigger_statements(dialect: str) -> Iterator[str]:
    """Yield the statements that create the ledger's triggers in a database with all tables."""
    if dialect == "postgresql":
        for name, body in POSTGRESQL_FUNCTIONS.items():
            # Plans are kept for long: one made while a table was small must use indexes, too.
            yield (
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
                f" SET enable_seqscan = off SET jit = off AS $${body.strip()};$$"
            )
    for name, body in TRIGGERS[dialect].items():
        yield f"CREATE TRIGGER {name} {body.strip()}"
