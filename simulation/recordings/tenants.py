"""Groups, weights and quotas of a recording: rows of its files, from when on they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from registry.admin import Past, PastTenant
from simulation.recordings.names import Names, seconds


def tree_rows(past: Past, names: Names) -> Iterator[tuple[str, str, float, float]]:
    """Yield where tenants of the trace, and groups above them, stand from when on.

    Of one who came later the first row says where it stood then: before, nobody asked.
    """
    groups = _groups_above(past.tenants, names)
    for tenant in past.tenants:
        told = _told_name(tenant.name, names, groups)
        if told is None:
            continue
        rows = {}  # of two changes in one millisecond the later one counts
        for number, standing in enumerate(tenant.standings):
            parent = "" if standing.parent is None else names.groups.of(standing.parent)
            at_s = seconds(standing.since, past.since) if number else 0.0
            rows[at_s] = (told, parent, standing.weight, at_s)
        yield from rows.values()


def quota_rows(past: Past, names: Names) -> Iterator[tuple[str, str, int | str, float]]:
    """Yield what tenants of the trace, and groups above them, could have from when on."""
    groups = _groups_above(past.tenants, names)
    for quota in past.quotas:
        told = _told_name(quota.owner, names, groups)
        if told is None:
            continue
        rows = {max(0.0, seconds(at, past.since)): limit for at, limit in quota.limits}
        for at_s, limit in rows.items():
            if limit is not None or at_s:
                yield told, quota.resource, "" if limit is None else limit, at_s


def _groups_above(tenants: Iterable[PastTenant], names: Names) -> frozenset[str]:
    """Return groups that tenants of the trace were ever part of."""
    above: dict[str, set[str]] = {
        tenant.name: {each.parent for each in tenant.standings if each.parent is not None}
        for tenant in tenants
    }
    found: set[str] = set()
    layer = {group for name in above if names.tenants.knows(name) for group in above[name]}
    while layer:
        found |= layer
        layer = {group for name in layer for group in above.get(name, ())} - found
    return frozenset(found)


def _told_name(name: str, names: Names, groups: frozenset[str]) -> str | None:
    """Return what a tenant or group is called in the files; None: it is not in them."""
    if name in groups:
        return names.groups.of(name)
    return names.tenants.of(name) if names.tenants.knows(name) else None
