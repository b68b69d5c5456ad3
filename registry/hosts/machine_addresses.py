"""Other addresses at which the machine of a host answers: the host is silent, but not off."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, or_, select

from registry.db.schema import hosts
from registry.hosts.health import ANSWERED_LATELY
from registry.hosts.host_records import read_host
from registry.hosts.machine_identity import is_namesake
from registry.lifecycle import HostAdmin

_EXCHANGED: Final = (
    "its machine answers at the address of host {other}, {uri}, so it is on: give both their own"
    " addresses again. Or give host {other} another one (`fuga host set {other} --uri URI`), and"
    " then this one to host {name} (`fuga host set {name} --uri {uri}`)"
)
_SECOND_NAME: Final = (
    "its machine answers as host {other}, so it is on: give host {name} an address of that machine"
    " (`fuga host set {name} --uri URI`). If that is to be {uri}, retire host {other} first"
    " (`fuga host remove {other}`)"
)


def other_address_of_machine(connection: Connection, host_id: UUID) -> str | None:
    """Return text that the machine of a host answers as another host, with advice, or None.

    Either host's address leads to the other one's machine, or the machine is registered twice. An
    answer counts until the polls of that address failed ten times in a row.
    """
    host = read_host(connection, host_id)
    if host.machine_uuid is None:
        return None
    others = (
        select(hosts.c.name, hosts.c.uri, hosts.c.found_machine_uuid, hosts.c.found_machine_name)
        .where(hosts.c.id != host_id, hosts.c.admin != HostAdmin.RETIRED.value)
        .order_by(hosts.c.name)
    )
    for row in connection.execute(others.where(hosts.c.found_machine_uuid == host.machine_uuid)):
        if not is_namesake(connection, host, (row.found_machine_name, None)):
            return _EXCHANGED.format(other=row.name, uri=row.uri, name=host.name)
    first = select(hosts.c.same_machine_as).where(hosts.c.id == host_id).scalar_subquery()
    second = others.where(
        or_(hosts.c.same_machine_as.in_([host_id, first]), hosts.c.id == first),
        hosts.c.machine_uuid == host.machine_uuid,
        hosts.c.found_machine_uuid.is_(None),
        ANSWERED_LATELY,
    )
    for row in connection.execute(second.limit(1)):
        return _SECOND_NAME.format(other=row.name, uri=row.uri, name=host.name)
    return None
