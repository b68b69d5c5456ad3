"""Quotas: hard limits on what a tenant, or a group with all below it, may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from registry.audit.events import record_event
from registry.catalogue.resources import VMS, VOLUMES, resource_names
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.locks import lock_tenants
from registry.db.names import MAX_AMOUNT, check_int
from registry.db.schema import quotas, tenants
from registry.errors import ConflictError, InvalidError, UnknownNameError
from registry.records.tenancy import OverQuota, Quota, QuotaUse
from registry.tenancy.quota_use import (
    default_limits,
    held_amounts,
    read_limits,
    read_owner_names,
    requested_amounts,
    tenants_with_limits,
)
from registry.tenancy.tree import read_path, tenant_id


class Quotas(Repository):
    """Sets and shows quotas."""

    def get(self, tenant: str) -> Quota:
        """Return the quotas of a tenant or group and of the groups above it, with their use."""
        with self._database.read() as connection:
            return _get_quota(connection, tenant)

    def unlimited_tenants(self) -> tuple[str, ...]:
        """Return the names of tenants without any quota, neither their own nor a group's."""
        query = select(tenants.c.id, tenants.c.name).where(
            tenants.c.removed_at.is_(None), tenants.c.is_group.is_(False)
        )
        with self._database.read() as connection:
            names = {row.id: row.name for row in connection.execute(query)}
            limited = tenants_with_limits(connection, names)
        return tuple(sorted(name for key, name in names.items() if key not in limited))

    @retry_on_rollback
    def set(
        self,
        tenant: str,
        limits: Mapping[str, int | None],
        *,
        over_quota: OverQuota | Literal["inherit"] | None = None,
        actor: str,
    ) -> Quota:
        """Set quotas of a tenant or group; None removes a limit, others stay.

        A limit below the present use refuses new VMs and ends none. ``over_quota`` is the rule for
        requests above a quota: ``inherit`` means that of the nearest group above, None that the
        rule stays.

        Raises
        ------
        InvalidError
            If a resource is not known, or a limit is out of bounds.
        """
        if over_quota not in (None, "refuse", "wait", "inherit"):
            raise InvalidError("over_quota", over_quota, "refuse, wait or inherit")
        with self._database.write() as connection:
            key = tenant_id(connection, tenant)
            lock_tenants(connection, key)
            known = (*resource_names(connection), VMS, VOLUMES)
            for resource, limit in limits.items():
                if resource not in known:
                    raise UnknownNameError(f"limits.{resource}", "resource", resource, known=known)
                if limit is not None:
                    check_int(f"limits.{resource}", limit, 0, MAX_AMOUNT)
            before = read_limits(connection, [key]).get(key, {})
            given = default_limits(connection, [key])
            changed = {
                resource: limit
                for resource, limit in limits.items()
                if before.get(resource) != limit or (key, resource) in given
            }
            _write_limits(connection, key, changed)
            data: dict[str, Any] = {
                "before": {resource: before.get(resource) for resource in changed},
                "limits": changed,
            }
            if over_quota is not None:
                word = None if over_quota == "inherit" else over_quota
                connection.execute(
                    update(tenants).where(tenants.c.id == key).values(over_quota=word)
                )
                data["over_quota"] = over_quota
            now = db_now(connection)
            record_event(
                connection, now, actor, "quota_set", "tenant", tenant, tenant=tenant, data=data
            )
            return _get_quota(connection, tenant)


def set_default_limits(
    connection: Connection, key: UUID, limits: Mapping[str, int]
) -> dict[str, Any] | None:
    """Set the default quotas of a new tenant; return them for its event, or None.

    Raises
    ------
    ConflictError
        If the setting names what is no resource.
    """
    if not limits:
        return None
    known = (*resource_names(connection), VMS, VOLUMES)
    unknown = sorted(limits.keys() - set(known))
    if unknown:
        raise ConflictError(
            f"the default quota of new tenants (FUGA_DEFAULT_QUOTA) names {unknown[0]}, allowed"
            f" is one of {', '.join(known)}"
        )
    rows = [
        {"tenant_id": key, "resource": resource, "amount": limit, "by_default": True}
        for resource, limit in limits.items()
    ]
    connection.execute(insert(quotas), rows)
    return {"before": dict.fromkeys(limits), "limits": dict(limits), "by_default": True}


def _write_limits(connection: Connection, key: UUID, limits: Mapping[str, int | None]) -> None:
    """Write quotas of a tenant or group; None removes a limit."""
    if not limits:
        return
    connection.execute(
        delete(quotas).where(quotas.c.tenant_id == key, quotas.c.resource.in_(list(limits)))
    )
    rows = [
        {"tenant_id": key, "resource": resource, "amount": limit}
        for resource, limit in limits.items()
        if limit is not None
    ]
    if rows:
        connection.execute(insert(quotas), rows)


def _get_quota(connection: Connection, tenant: str) -> Quota:
    """Return the quotas of a tenant or group and of the groups above it, with their use."""
    key = tenant_id(connection, tenant)
    path = read_path(connection, key)
    limits = read_limits(connection, path)
    names = read_owner_names(connection, path)
    given = default_limits(connection, path)
    over_quota = connection.execute(
        select(tenants.c.over_quota).where(tenants.c.id == key)
    ).scalar()
    return Quota(
        tenant=tenant,
        over_quota=over_quota,
        limits=tuple(
            replace(use, by_default=(each, use.resource) in given)
            for each in path
            for use in _quota_uses(connection, each, names[each], limits.get(each))
        ),
    )


def _quota_uses(
    connection: Connection, key: UUID, name: str, limits: Mapping[str, int] | None
) -> Sequence[QuotaUse]:
    """Return the limits of one tenant or group, each with what is requested and held."""
    if not limits:
        return ()
    wanted, has = requested_amounts(connection, key), held_amounts(connection, key)
    return [
        QuotaUse(
            tenant=name,
            resource=resource,
            limit=limit,
            requested=wanted.get(resource, 0),
            held=has.get(resource, 0),
        )
        for resource, limit in limits.items()
    ]
