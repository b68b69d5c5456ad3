"""Over-commit ratios: a host's own, else the lowest of its labels, else none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from registry.db.bulk import chunks
from registry.db.schema import hosts, inventories, label_ratios

NO_OVERCOMMIT = 1000


def ratios_by_label(connection: Connection) -> Mapping[str, dict[str, int]]:
    """Return the default over-commit ratios of hosts by label and resource, in thousandths."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    query = select(label_ratios).order_by(label_ratios.c.label, label_ratios.c.resource)
    for row in connection.execute(query):
        found[row.label][row.resource] = row.ratio_thousandths
    return found


def write_label_ratios(connection: Connection, label: str, ratios: Mapping[str, int]) -> None:
    """Replace the default over-commit ratios of hosts with a label."""
    connection.execute(delete(label_ratios).where(label_ratios.c.label == label))
    rows = [
        {"label": label, "resource": resource, "ratio_thousandths": ratio}
        for resource, ratio in sorted(ratios.items())
    ]
    if rows:
        connection.execute(insert(label_ratios), rows)


def refresh_ratios(connection: Connection, keys: Collection[UUID]) -> None:
    """Update the over-commit ratios in force on these hosts, which are locked."""
    defaults = ratios_by_label(connection)
    for some in chunks(sorted(keys)):
        query = (
            select(
                inventories.c.host_id,
                inventories.c.resource,
                inventories.c.own_ratio_thousandths,
                inventories.c.ratio_thousandths,
                hosts.c.labels,
            )
            .join(hosts, hosts.c.id == inventories.c.host_id)
            .where(inventories.c.host_id.in_(some))
            .order_by(inventories.c.host_id, inventories.c.resource)
        )
        for row in connection.execute(query).all():
            by_label = [
                defaults[label][row.resource]
                for label in row.labels
                if row.resource in defaults.get(label, {})
            ]
            ratio = row.own_ratio_thousandths or min(by_label, default=NO_OVERCOMMIT)
            if ratio != row.ratio_thousandths:
                connection.execute(
                    update(inventories)
                    .where(
                        inventories.c.host_id == row.host_id, inventories.c.resource == row.resource
                    )
                    .values(ratio_thousandths=ratio)
                )
