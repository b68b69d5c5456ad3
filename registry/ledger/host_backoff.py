"""Backoff of requests from hosts where their VMs could not be built."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, and_, insert, update

from registry.db.schema import build_failures

BUILD_AVOID_S: Final = 300.0


def record_host_backoff(
    connection: Connection,
    request_id: UUID,
    host_id: UUID,
    now: datetime,
    length_s: float = BUILD_AVOID_S,
) -> None:
    """Have rounds place no VMs of a request on a host for ``length_s``: a build failed there."""
    until = now + timedelta(seconds=length_s)
    which = and_(build_failures.c.request_id == request_id, build_failures.c.host_id == host_id)
    changed = connection.execute(
        update(build_failures).where(which).values(avoid_until=until)
    ).rowcount
    if not changed:
        connection.execute(
            insert(build_failures).values(request_id=request_id, host_id=host_id, avoid_until=until)
        )
