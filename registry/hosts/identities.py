"""The names and addresses of hosts, and the secret from which tenants' host aliases are made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from registry.db.engine import Repository
from registry.db.schema import host_reports, hosts, installation_secrets
from registry.lifecycle import HostAdmin

_NAMES = "names"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """All names and addresses of one host."""

    name: str
    uri: str
    hostname: str | None  #: as the machine reports it; None if it never answered
    retired: bool


class HostIdentities(Repository):
    """Reads the names of all hosts, also of retired ones, which old texts mention."""

    def secret(self) -> bytes:
        """Return the secret key of tenants' host aliases. No caller ever sees it."""
        query = select(installation_secrets.c.value).where(installation_secrets.c.name == _NAMES)
        with self._database.read() as connection:
            value: str = connection.scalars(query).one()
        return bytes.fromhex(value)

    def change_mark(self) -> tuple[int, int, datetime | None]:
        """Return a value that changes when a host is added or retired, by a cheap query."""
        retired = hosts.c.admin == HostAdmin.RETIRED.value
        query = select(
            func.count(), func.count().filter(retired), func.max(hosts.c.created_at)
        ).select_from(hosts)
        with self._database.read() as connection:
            every, gone, newest = connection.execute(query).one()
        return every, gone, newest

    def all(self) -> tuple[HostIdentity, ...]:
        """Return the names and addresses of all hosts, also retired ones, by name."""
        query = (
            select(
                hosts.c.name,
                hosts.c.uri,
                hosts.c.admin,
                host_reports.c.report["hostname"].as_string().label("hostname"),
            )
            .outerjoin(host_reports, host_reports.c.host_id == hosts.c.id)
            .order_by(hosts.c.name, hosts.c.id)
        )
        with self._database.read() as connection:
            return tuple(
                HostIdentity(
                    name=row.name,
                    uri=row.uri,
                    hostname=row.hostname,
                    retired=row.admin == HostAdmin.RETIRED.value,
                )
                for row in connection.execute(query)
            )
