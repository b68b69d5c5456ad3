"""Access to guests: SSH keys and user data, from the request to the build.

User data may hold passwords. Only a build reads it; callers see its size and its hash. It is
deleted when its request ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.bulk import chunks
from registry.db.schema import request_access, ssh_keys
from registry.errors import InvalidError
from registry.records.requests import GuestAccess, UserData
from registry.tenancy.public_keys import check_public_keys, fingerprint

MAX_USER_DATA_BYTES: Final = 65536

#: The visible part of a request's access: key fingerprints, user data, and warnings.
AccessSummary = tuple[tuple[str, ...], UserData | None, tuple[str, ...]]
NOTHING: Final[AccessSummary] = ((), None, ())
NO_ACCESS: Final = GuestAccess(ssh_keys=(), user_data=None)


def check_access(
    keys: Sequence[str], user_data: bytes | None, ignored: str | None = None
) -> GuestAccess:
    """Return a request's SSH keys and user data, checked, or raise `InvalidError`."""
    if user_data is not None and len(user_data) > MAX_USER_DATA_BYTES:
        raise InvalidError(
            "user_data", f"{len(user_data)} bytes", f"at most {MAX_USER_DATA_BYTES} bytes"
        )
    return GuestAccess(
        ssh_keys=tuple(check_public_keys("ssh_keys", keys)),
        user_data=user_data or None,
        ignored=ignored if user_data else None,
    )


def access_row(request_id: UUID, access: GuestAccess) -> dict[str, Any]:
    """Return the row of a request's SSH keys and user data."""
    content = access.user_data or b""
    return {
        "request_id": request_id,
        "ssh_keys": list(access.ssh_keys),
        "user_data": access.user_data,
        "user_data_bytes": len(content),
        "user_data_sha256": hashlib.sha256(content).hexdigest(),
        "user_data_ignored": access.ignored,
    }


def access_summary(access: GuestAccess) -> AccessSummary:
    """Return the visible part of a request's SSH keys and user data."""
    keys = tuple(fingerprint(key) for key in access.ssh_keys)
    if access.user_data is None:
        return keys, None, ()
    sha256 = hashlib.sha256(access.user_data).hexdigest()
    data = UserData(bytes=len(access.user_data), sha256=sha256)
    return keys, data, _user_data_warnings(access.ignored)


def _user_data_warnings(ignored: str | None) -> tuple[str, ...]:
    """Return a warning if cloud-init will ignore a request's user data."""
    return () if ignored is None else (f"cloud-init will ignore the user data, which {ignored}",)


def read_access(
    connection: Connection, request_ids: Iterable[UUID]
) -> Mapping[UUID, AccessSummary]:
    """Return the visible part of requests' SSH keys and user data, by request."""
    columns = [column for column in request_access.c if column.key != "user_data"]
    found: dict[UUID, AccessSummary] = {}
    for some in chunks(sorted(request_ids)):
        query = select(*columns).where(request_access.c.request_id.in_(some))
        for row in connection.execute(query):
            data = UserData(bytes=row.user_data_bytes, sha256=row.user_data_sha256)
            keys = tuple(fingerprint(key) for key in row.ssh_keys)
            warnings = _user_data_warnings(row.user_data_ignored)
            found[row.request_id] = (keys, data if data.bytes else None, warnings)
    return found


def read_guest_access(connection: Connection, request_id: UUID, tenant_id: UUID) -> GuestAccess:
    """Return the SSH keys and user data for a VM's build: the tenant's keys and the request's."""
    own = connection.scalars(
        select(ssh_keys.c.public_key)
        .where(ssh_keys.c.tenant_id == tenant_id)
        .order_by(ssh_keys.c.id)
    ).all()
    row = connection.execute(
        select(request_access.c.ssh_keys, request_access.c.user_data).where(
            request_access.c.request_id == request_id
        )
    ).one_or_none()
    with_request = row.ssh_keys if row is not None else []
    return GuestAccess(
        ssh_keys=tuple(dict.fromkeys([*own, *with_request])),
        user_data=row.user_data if row is not None else None,
    )
