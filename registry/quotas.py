"""Quotas: hard limits on what a tenant, or a group with all below it, may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import InvalidError, QuotaExceededError, QuotaExcess
from registry.events import event_row, record
from registry.locks import lock_tenants
from registry.names import MAX_AMOUNT, check_int
from registry.quota_use import amounts_of, asked, held, limits_of, lock_limited, names_of
from registry.records import OverQuota, Quota, QuotaUse
from registry.resources import VMS, resource_names
from registry.schema import quotas, tenants
from registry.tenant_tree import path_of, tenant_id


class Quotas:
    """Sets and shows quotas."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, tenant: str) -> Quota:
        """Return the limits of a tenant or group and of the groups above it, with their use."""
        with self._database.read() as connection:
            return _get(connection, tenant)

    @retried
    def set(
        self,
        tenant: str,
        limits: Mapping[str, int | None],
        *,
        over_quota: OverQuota | Literal["inherit"] | None = None,
        actor: str,
    ) -> Quota:
        """Set limits of a tenant or group; None takes one back, others stay.

        A limit below what is used stops new VMs and ends none. ``over_quota``
        says what becomes of requests above a quota; ``inherit``: as the nearest
        group above says; None: as before.

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
            known = (*resource_names(connection), VMS)
            for resource, limit in limits.items():
                if resource not in known:
                    raise InvalidError(f"limits.{resource}", resource, f"one of {', '.join(known)}")
                if limit is not None:
                    check_int(f"limits.{resource}", limit, 0, MAX_AMOUNT)
            before = limits_of(connection, [key]).get(key, {})
            changed = {r: limit for r, limit in limits.items() if before.get(r) != limit}
            _write(connection, key, changed)
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
            history = event_row(now, actor, "quota_set", "tenant", tenant, tenant=tenant, data=data)
            record(connection, [history])
            return _get(connection, tenant)


def check_quota(
    connection: Connection, tenant: UUID, vm_type: UUID, more: int, *, over_quota: OverQuota
) -> None:
    """Raise if so many more VMs of a type are above a quota, for whoever asks for them.

    To be called by every transaction that lets a tenant want more VMs, before
    it writes them, with the tenant's row locked (`asker_id`). Until it is over
    nobody else asks within the same limits.

    Parameters
    ----------
    over_quota : OverQuota
        What the installation says of requests above a quota, where neither the
        tenant nor a group above it says otherwise.

    Raises
    ------
    QuotaExceededError
        Naming every limit that stands in the way; not where such requests wait.
    """
    limited = lock_limited(connection, [tenant])[tenant]
    if not limited or when_over(connection, tenant, over_quota) == "wait":
        return
    limits = limits_of(connection, limited)
    names = names_of(connection, (tenant, *limited))
    wanted = amounts_of(connection, {vm_type: more})
    exceeded = []
    for key in limited:
        used = asked(connection, key)
        exceeded += [
            QuotaExcess(
                tenant=names[key],
                resource=resource,
                limit=limit,
                used=used.get(resource, 0),
                asked=wanted[resource],
            )
            for resource, limit in limits[key].items()
            if wanted.get(resource) and used.get(resource, 0) + wanted[resource] > limit
        ]
    if exceeded:
        raise QuotaExceededError(names[tenant], exceeded)


def when_over(connection: Connection, tenant: UUID, otherwise: OverQuota) -> OverQuota:
    """Return what becomes of requests above a quota: the nearest word on the path counts."""
    path = path_of(connection, tenant)
    query = select(tenants.c.id, tenants.c.over_quota).where(tenants.c.id.in_(path))
    said = {row.id: row.over_quota for row in connection.execute(query)}
    found: OverQuota = next((said[key] for key in path if said[key] is not None), otherwise)
    return found


def _write(connection: Connection, key: UUID, limits: Mapping[str, int | None]) -> None:
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


def _get(connection: Connection, tenant: str) -> Quota:
    key = tenant_id(connection, tenant)
    path = path_of(connection, key)
    limits = limits_of(connection, path)
    names = names_of(connection, path)
    over_quota = connection.execute(
        select(tenants.c.over_quota).where(tenants.c.id == key)
    ).scalar()
    return Quota(
        tenant=tenant,
        over_quota=over_quota,
        limits=tuple(
            use for each in path for use in _uses(connection, each, names[each], limits.get(each))
        ),
    )


def _uses(
    connection: Connection, key: UUID, name: str, limits: Mapping[str, int] | None
) -> Sequence[QuotaUse]:
    if not limits:
        return ()
    wanted, has = asked(connection, key), held(connection, key)
    return [
        QuotaUse(
            tenant=name,
            resource=resource,
            limit=limit,
            asked=wanted.get(resource, 0),
            held=has.get(resource, 0),
        )
        for resource, limit in limits.items()
    ]
