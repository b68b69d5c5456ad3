"""The stored lines of closed months, and of corrections of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, func, select

from registry.db.schema import closed_usage, closed_usage_lines
from registry.usage.daily_usage import next_month
from registry.usage.holding_times import SECOND

MONTH: Final = "month"
#: The kind of an entry that corrects a closed month, and what its line has as resource.
CORRECTION: Final = "correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLine:
    """A line as it was when its month was closed, or a correction."""

    tenant_id: UUID
    tenant: str
    groups: tuple[str, ...]  #: above the tenant, the nearest first
    vm_type: str | None  #: None: a correction
    resource: str
    held: int = 0  #: in microseconds
    charged: int = 0
    price: Decimal | None = None
    price_since: date | None = None
    cost: Decimal | None = None

    @classmethod
    def from_row(cls, row: Row[Any]) -> ClosedLine:
        """Return the line of a row of `closed_usage_lines`."""
        return cls(
            tenant_id=row.tenant_id,
            tenant=row.tenant,
            groups=tuple(row.groups.split("/")) if row.groups else (),
            vm_type=row.vm_type,
            resource=row.resource,
            held=row.held_s * SECOND + row.held_us,
            charged=row.charged_s * SECOND + row.charged_us,
            price=row.price,
            price_since=row.price_since,
            cost=row.cost,
        )

    def to_row(self) -> dict[str, Any]:
        """Return the line's own columns of `closed_usage_lines`."""
        return {
            "tenant_id": self.tenant_id,
            "tenant": self.tenant,
            "groups": "/".join(self.groups),
            "vm_type": self.vm_type,
            "resource": self.resource,
            "held_s": self.held // SECOND,
            "held_us": self.held % SECOND,
            "charged_s": self.charged // SECOND,
            "charged_us": self.charged % SECOND,
            "price": self.price,
            "price_since": self.price_since,
            "cost": self.cost,
        }


def closed_months(connection: Connection) -> list[date]:
    """Return the first days of all closed months, in order."""
    query = select(closed_usage.c.month).where(closed_usage.c.kind == MONTH)
    return list(connection.scalars(query.order_by(closed_usage.c.month)))


def closed_until(connection: Connection) -> date | None:
    """Return the day after the last closed month, or None."""
    last = connection.scalar(select(func.max(closed_usage.c.month)))
    return None if last is None else next_month(last)


def read_closed_lines(
    connection: Connection, months: Collection[date], *, tenant_id: UUID | None = None
) -> Iterator[ClosedLine]:
    """Yield the lines of months and of their corrections, of one tenant or of all."""
    if not months:
        return
    query = (
        select(closed_usage_lines)
        .join(closed_usage, closed_usage.c.number == closed_usage_lines.c.entry)
        .where(closed_usage.c.month.in_(months))
    )
    if tenant_id is not None:
        query = query.where(closed_usage_lines.c.tenant_id == tenant_id)
    for row in connection.execute(query):
        yield ClosedLine.from_row(row)
