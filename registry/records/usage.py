"""Usage of resources over time, prices and costs: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import PlainSerializer

#: A decimal number that is JSON text without an exponent.
PlainDecimal = Annotated[Decimal, PlainSerializer(lambda number: format(number, "f"), str, "json")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageItem:
    """The usage of one resource, in its unit times seconds, exact to the microsecond."""

    name: str | None  #: of the tenant, group, type or label value; None: no such, or all together
    resource: str  #: "vms" counts VMs; "borrowed:vms" and so on: of borrowed VMs
    held: Decimal  #: held by assignments, failed builds and both hosts of a move included
    charged: Decimal  #: held by VMs that were built, each counted once
    cost: Decimal | None = None  #: what `charged` costs, in the currency; None: no price held


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a period; each amount is in one item."""

    since: datetime
    until: datetime  #: the end of the period, or the time of the answer if that was earlier
    by: str | None  #: what the items are by: `tenant`, `group`, `type` or `label:KEY`
    items: Sequence[UsageItem]
    currency: str | None = None  #: of the costs; None: the site has no prices
    cost: Decimal | None = None  #: the sum of the items' costs; None: none has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """What prices and costs are in."""

    name: str  #: such as EUR
    minor_digits: int  #: decimal places of costs, to which each line is rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A version of a price: it holds from a day (UTC) until the next version with its subject."""

    resource: str  #: "vms" counts VMs; "borrowed:vms" and so on: of borrowed VMs
    vm_type: str | None  #: only for VMs of this type; None: for all types without a price
    since: date
    price: PlainDecimal | None  #: of one unit for an hour; None: no price from that day on


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """All versions of all prices, by resource, type and day."""

    currency: Currency | None  #: None: no price was ever set
    items: Sequence[Price]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """A line of an entry, with each value as the text that is digested."""

    vm_type: str | None  #: None: a correction
    resource: str
    held: str
    charged: str
    price: str | None
    price_since: str | None
    cost: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLeaf:
    """A tenant's part of an entry, or for operators its author; to others a digest alone."""

    digest: str
    salt: str | None = None  #: None: the rest is another tenant's
    tenant: str | None = None  #: None: the author's leaf
    groups: Sequence[str] = ()  #: above the tenant at that time, the nearest first
    author: str | None = None
    reason: str | None = None  #: of a correction
    lines: Sequence[EntryLine] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySignature:
    """The site's signature of an entry's link."""

    key: str  #: the public key, in hexadecimal
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedEntry:
    """A closed month, or a correction of one, in the chain of all such entries."""

    number: int  #: from 1 on, without gaps
    kind: str  #: `month` or `correction`
    month: date  #: its first day
    currency: str | None  #: None: the site had no prices
    minor_digits: int | None
    created_at: datetime
    previous: str  #: the link of the entry before; zeros before the first one
    content: str  #: digest of the entry's own fields and its leaves
    link: str  #: digest of both
    signed: EntrySignature | None = None
    leaves: Sequence[EntryLeaf] = ()  #: sorted by digest
