"""What a VM takes of its host beyond its type: QEMU's own memory, say.

Part of what an assignment holds, and so of the demand that a round sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy import Connection, select

from registry.ground.bulk import chunks
from registry.ground.schema import resources, vm_type_resources, vm_types


def demands(
    connection: Connection, vm_type_ids: Iterable[UUID] | None = None
) -> Mapping[UUID, dict[str, int]]:
    """Return by type what one VM of it holds, overhead included; of None: every type."""
    overhead = {
        row.name: row.overhead_per_vm
        for row in connection.execute(
            select(resources.c.name, resources.c.overhead_per_vm).where(
                resources.c.overhead_per_vm > 0
            )
        )
    }
    keys = (
        connection.scalars(select(vm_types.c.id)).all()
        if vm_type_ids is None
        else sorted(set(vm_type_ids))
    )
    found: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
    for some in chunks(keys):
        query = select(vm_type_resources).where(vm_type_resources.c.vm_type_id.in_(some))
        for row in connection.execute(query):
            found[row.vm_type_id][row.resource] = row.amount
    for amounts in found.values():
        for name, amount in overhead.items():
            amounts[name] = amounts.get(name, 0) + amount
    return found
