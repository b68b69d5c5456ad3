"""The register center as its callers see it: one object, a store for each kind of thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from registry.admin.borrowed_totals import BorrowedTotals, read_borrowed_totals
from registry.admin.clock_steps import ClockSteps
from registry.admin.connections import DatabaseConnections, database_connections
from registry.admin.database_role import DatabaseRoles, database_roles
from registry.admin.doctor import find_inconsistencies
from registry.admin.fleet import FleetCounts, read_fleet
from registry.admin.history import History
from registry.admin.known_schema import foreign_objects_in, refuse_foreign_objects
from registry.admin.liveness import read_liveness
from registry.admin.processes import Processes
from registry.admin.reserved_names import reserved_names
from registry.admin.retention import Retention
from registry.admin.revisions import head_revision
from registry.admin.upgrade import check_schema
from registry.admin.what_ifs import WhatIfs
from registry.audit.audit import Audit
from registry.audit.events import Events
from registry.audit.idempotency import Idempotency
from registry.capacity.capacity_history import CapacityHistory
from registry.catalogue.resources import Resources
from registry.catalogue.vm_types import VmTypes
from registry.consoles.holds import ConsoleHolds
from registry.consoles.reads import ConsoleReads
from registry.consoles.sessions import ConsoleSessions
from registry.db.audit_context import AuditedCall
from registry.db.clock import db_now
from registry.db.engine import Database, parse_database_url
from registry.db.idempotency_keys import IdempotentCall
from registry.db.if_match import Condition
from registry.differences.differences import Differences
from registry.errors import SchemaOutdatedError
from registry.hosts.hosts import Hosts
from registry.hosts.identities import HostIdentities
from registry.hosts.monitors import Monitors
from registry.hosts.watched_hosts import WatchedHosts
from registry.images.images import Images
from registry.moves.auto_plans import AutoPlans
from registry.moves.moves import Moves
from registry.moves.plans import Plans
from registry.moves.rolls import Rolls
from registry.moves.room_plans import RoomPlans
from registry.networks.networks import Networks
from registry.records.liveness import Liveness
from registry.requests.requests import Requests
from registry.requests.vm_groups import VmGroups
from registry.requests.vms import Vms
from registry.reservations.reservations import Reservations
from registry.rounds.cluster_queries import ClusterQueries
from registry.rounds.hash_chain import RoundProofs
from registry.rounds.leases import Leases
from registry.rounds.rounds import Rounds
from registry.rounds.shadows import Shadows
from registry.rounds.site_keys import SiteKeys
from registry.rounds.slot_loop import SlotLoopSwitch
from registry.tasks.assignments import Assignments
from registry.tasks.fencing import Fencing
from registry.tasks.image_copies import ImageCopyTasks
from registry.tasks.image_imports import ImageImports
from registry.tasks.move_steps import MoveSteps
from registry.tasks.power_steps import PowerSteps
from registry.tasks.volume_steps import VolumeSteps
from registry.tenancy.logins import Logins
from registry.tenancy.quotas import Quotas
from registry.tenancy.ssh_keys import SshKeys
from registry.tenancy.tenants import Tenants
from registry.tenancy.tokens import Tokens
from registry.usage.budgets import Budgets
from registry.usage.closed_months import ClosedMonths
from registry.usage.prices import Prices
from registry.usage.usage import UsageSums
from registry.volumes.volumes import Volumes


@dataclass(frozen=True, slots=True)
class Precondition:
    """An If-Match precondition: ``check`` raises if the resource has changed.

    It reads in the transaction of the call's first write, through the given register center. The
    row of the resource is locked.
    """

    kind: str  #: one of those in `registry.db.if_match`
    key: Any
    check: Callable[[Registry], None]


class Registry:
    """The stores of the register center. Each call is one transaction and returns plain values.

    Safe to share between threads. Do not carry it across a fork: connect
    again in the child.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.resources = Resources(database)
        self.hosts = Hosts(database)
        self.watched_hosts = WatchedHosts(database)
        self.host_identities = HostIdentities(database)
        self.fencing = Fencing(database)
        self.differences = Differences(database)
        self.vm_types = VmTypes(database)
        self.images = Images(database)
        self.image_copies = ImageCopyTasks(database)
        self.image_imports = ImageImports(database)
        self.tenants = Tenants(database)
        self.ssh_keys = SshKeys(database)
        self.networks, self.quotas = Networks(database), Quotas(database)
        self.requests = Requests(database)
        self.reservations = Reservations(database)
        self.vms = Vms(database)
        self.vm_groups = VmGroups(database)
        self.assignments = Assignments(database)
        self.power = PowerSteps(database)
        self.volumes, self.volume_steps = Volumes(database), VolumeSteps(database)
        self.moves = Moves(database)
        self.plans = Plans(database)
        self.room_plans = RoomPlans(database)
        self.rolls = Rolls(database)
        self.standing_plans = AutoPlans(database)
        self.move_steps = MoveSteps(database)
        self.console_reads = ConsoleReads(database)
        self.console_sessions = ConsoleSessions(database)
        self.console_holds = ConsoleHolds(database)
        self.rounds = Rounds(database)
        self.round_proofs = RoundProofs(database)
        self.site_keys = SiteKeys(database)
        self.cluster_queries = ClusterQueries(database)
        self.shadows = Shadows(database)
        self.usage, self.budgets = UsageSums(database), Budgets(database)
        self.prices, self.closed_months = Prices(database), ClosedMonths(database)
        self.retention = Retention(database)
        self.capacity_history = CapacityHistory(database)
        self.history = History(database)
        self.events = Events(database)
        self.audit, self.tokens = Audit(database), Tokens(database)
        self.logins = Logins(database)
        self.leases = Leases(database)
        self.monitors = Monitors(database)
        self.slot_loop = SlotLoopSwitch(database)
        self.processes = Processes(database)
        self.clock_steps = ClockSteps(database)
        self.idempotency = Idempotency(database)
        self.what_ifs = WhatIfs(database)

    @classmethod
    def connect(cls, database_url: str) -> Registry:
        """Open a database whose schema this code can use, or raise `SchemaOutdatedError`."""
        url = parse_database_url(database_url)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            # SQLite would create an empty file, which hides a wrong path.
            raise SchemaOutdatedError(f"none (no file {url.database})", head_revision())
        database = Database(database_url)
        try:
            with database.read() as connection:
                if check_schema(connection):
                    refuse_foreign_objects(connection)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def for_call(
        self,
        call: AuditedCall | None,
        only_if: Precondition | None = None,
        once: IdempotentCall | None = None,
    ) -> Registry:
        """Return the register center for one call, with its audit entry and precondition.

        With ``once`` its first write raises `AnsweredBeforeError` if an earlier call did the work.
        """
        database, condition = self._database, None
        if only_if is not None:
            check = only_if.check

            def check_precondition(connection: Connection) -> None:
                check(Registry(database.with_connection(connection)))

            condition = Condition(only_if.kind, only_if.key, check_precondition)
        return Registry(database.for_call(call, condition, once))

    def close(self) -> None:
        """Close every connection of the register center to the database."""
        self._database.close()

    @property
    def database_url(self) -> str:
        """The URL by which a child process opens the database; it may contain a password."""
        return self._database.url

    def now(self) -> datetime:
        """Return the database's time, by which leases and reservations expire."""
        with self._database.read_statement() as connection:
            return db_now(connection)

    def check_schema(self) -> None:
        """Raise unless the database answers, with a schema that this code can use."""
        with self._database.read() as connection:
            check_schema(connection)

    @property
    def is_full(self) -> bool:
        """Whether the database's disk refused what this process wrote within the last minute."""
        return self._database.is_full

    def fleet(self) -> FleetCounts:
        """Return the figures of hosts, VMs and requests that metrics publish, in one read."""
        with self._database.read() as connection:
            return read_fleet(connection)

    def borrowed_totals(self) -> tuple[BorrowedTotals, ...]:
        """Return what the borrowed VMs of each tenant hold that has any, by name."""
        with self._database.read() as connection:
            return read_borrowed_totals(connection)

    def connections(self) -> DatabaseConnections | None:
        """Return the database server's connection limit and fuga's connections; None for SQLite."""
        with self._database.read() as connection:
            return database_connections(connection)

    def database_roles(self) -> DatabaseRoles | None:
        """Return the database roles of fuga's processes; None for SQLite."""
        with self._database.read() as connection:
            return database_roles(connection)

    def liveness(self) -> Liveness:
        """Return the leading control centre, heartbeats and the last round, in one read."""
        with self._database.read() as connection:
            return read_liveness(connection)

    def reserved_names(self) -> list[tuple[str, str]]:
        """Return kind and name of objects that are named like reserved words, such as ``all``."""
        with self._database.read() as connection:
            return list(reserved_names(connection))

    def check(self, *, history: bool = True) -> list[str]:
        """Return a sentence for each inconsistency of the register center.

        Without ``history`` deleted objects are not checked, so the cost does not grow with the
        years.
        """
        with self._database.read() as connection:
            strangers = [f"the schema has {each}" for each in foreign_objects_in(connection)]
        return [*strangers, *find_inconsistencies(self._database.read, history=history)]
