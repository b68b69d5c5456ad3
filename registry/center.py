"""The register center as its callers see it: one object, a store for each kind of thing."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from registry.assignments import Assignments
from registry.audit import Audit
from registry.clock import db_now
from registry.console_holds import ConsoleHolds
from registry.console_reads import ConsoleReads
from registry.console_sessions import ConsoleSessions
from registry.differences import Differences
from registry.doctor import check
from registry.engine import Database, database_at
from registry.errors import SchemaOutdatedError
from registry.events import Events
from registry.fencing import Fencing
from registry.fleet import Fleet, read_fleet
from registry.history import History
from registry.hosts import Hosts
from registry.idempotency import Idempotency
from registry.image_copies import ImageCopies
from registry.image_imports import ImageImports
from registry.images import Images
from registry.leases import Leases
from registry.networks import Networks
from registry.power_steps import PowerSteps
from registry.quotas import Quotas
from registry.requests import Requests
from registry.resources import Resources
from registry.retention import Retention
from registry.rounds import Rounds
from registry.shadows import Shadows
from registry.slot_loop import SlotLoopSwitch
from registry.ssh_keys import SshKeys
from registry.tenants import Tenants
from registry.tokens import Tokens
from registry.upgrade import check_schema, head_revision
from registry.vm_groups import VmGroups
from registry.vm_types import VmTypes
from registry.vms import Vms


class Registry:
    """Every call of a store is one transaction; what it returns is plain values.

    Safe to share between threads. Do not carry it across a fork: connect
    again in the child.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.resources = Resources(database)
        self.hosts = Hosts(database)
        self.fencing = Fencing(database)
        self.differences = Differences(database)
        self.vm_types = VmTypes(database)
        self.images = Images(database)
        self.image_copies = ImageCopies(database)
        self.image_imports = ImageImports(database)
        self.tenants = Tenants(database)
        self.ssh_keys = SshKeys(database)
        self.networks = Networks(database)
        self.quotas = Quotas(database)
        self.requests = Requests(database)
        self.vms = Vms(database)
        self.vm_groups = VmGroups(database)
        self.assignments = Assignments(database)
        self.power = PowerSteps(database)
        self.console_reads = ConsoleReads(database)
        self.console_sessions = ConsoleSessions(database)
        self.console_holds = ConsoleHolds(database)
        self.rounds = Rounds(database)
        self.shadows = Shadows(database)
        self.retention = Retention(database)
        self.history = History(database)
        self.events = Events(database)
        self.audit = Audit(database)
        self.tokens = Tokens(database)
        self.leases = Leases(database)
        self.slot_loop = SlotLoopSwitch(database)
        self.idempotency = Idempotency(database)

    @classmethod
    def connect(cls, database_url: str) -> Registry:
        """Open a database whose schema this code can use, or raise `SchemaOutdatedError`."""
        url = database_at(database_url)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            # SQLite would create an empty file, which hides a wrong path.
            raise SchemaOutdatedError(f"none (no file {url.database})", head_revision())
        database = Database(database_url)
        try:
            with database.read() as connection:
                check_schema(connection)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def now(self) -> datetime:
        """Return the database's time: the clock that judges leases."""
        with self._database.look() as connection:
            return db_now(connection)

    def check_schema(self) -> None:
        """Raise unless the database answers, with a schema that this code can use."""
        with self._database.read() as connection:
            check_schema(connection)

    def fleet(self) -> Fleet:
        """Return what metrics tell of everything there is, in one read."""
        with self._database.read() as connection:
            return read_fleet(connection)

    def check(self) -> list[str]:
        """Return what is wrong in the register center; empty when all is well."""
        with self._database.read() as connection:
            return check(connection)
