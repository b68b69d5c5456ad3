"""The price list: versions of prices, each from a day (UTC) on, and the site's currency."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from registry.audit.events import record_event
from registry.catalogue.resources import VMS, resource_names
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.exact_decimal import plain_decimal
from registry.db.idempotency_keys import store_result
from registry.db.locks import take_advisory_lock
from registry.db.names import check_int
from registry.db.schema import prices, site_currency, vm_types
from registry.errors import ConflictError, InvalidError, NotFoundError, UnknownNameError
from registry.records.usage import Currency, Price, PriceList
from registry.usage.borrowed_times import BORROWED
from registry.usage.closed_lines import closed_until

#: Key of the lock under which prices change.
PRICES: Final = "prices"
MAX_PRICE: Final = Decimal(1_000_000_000)
MAX_PLACES: Final = 15
MAX_VERSIONS: Final = 10_000
_FIRST_DAY, _LAST_DAY = date(2000, 1, 1), date(2099, 12, 31)
_CURRENCY: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,15}")
#: Currencies of ISO 4217 that are not counted in hundredths.
_NO_MINOR_UNIT: Final = ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF",
                         "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF")  # fmt: skip
_THOUSANDTHS: Final = ("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")
#: Currencies of ISO 4217 that are not counted in hundredths.
_MINOR_DIGITS: Final = MappingProxyType(
    dict.fromkeys(_NO_MINOR_UNIT, 0) | dict.fromkeys(_THOUSANDTHS, 3)
)


class PriceBook:
    """The versions of all prices, to find the one of a day."""

    def __init__(self, versions: Iterable[Price]) -> None:
        self._versions: defaultdict[tuple[str, str | None], list[Price]] = defaultdict(list)
        for each in sorted(versions, key=lambda version: version.since):
            self._versions[each.resource, each.vm_type].append(each)

    def version_on(self, resource: str, vm_type: str, day: date) -> Price | None:
        """Return the version that holds for VMs of a type: its own, else that of all types.

        Without a price of their own, borrowed VMs have that of ordinary ones.
        """
        for name in dict.fromkeys((resource, resource.removeprefix(BORROWED))):
            for of_type in (vm_type, None):
                found = self._last(name, of_type, day)
                if found is not None and found.price is not None:
                    return found
        return None

    def _last(self, resource: str, vm_type: str | None, day: date) -> Price | None:
        found = self._versions.get((resource, vm_type), [])
        place = bisect_right(found, day, key=lambda version: version.since)
        return found[place - 1] if place else None

    def change_days(self) -> Sequence[date]:
        """Return the days on which a version begins to hold, in order."""
        days = {each.since for versions in self._versions.values() for each in versions}
        return sorted(days)


class Prices(Repository):
    """Sets, removes and shows prices."""

    def list(self) -> PriceList:
        """Return the currency and all versions, by resource, type and day."""
        with self._database.read() as connection:
            return PriceList(currency=read_currency(connection), items=read_prices(connection))

    @retry_on_rollback
    def set_currency(self, name: str, *, minor_digits: int | None = None, actor: str) -> Currency:
        """Set what prices and costs are in.

        Parameters
        ----------
        minor_digits : int, optional
            Decimal places of costs; by default those of ISO 4217, or 2.
        """
        if not _CURRENCY.fullmatch(name):
            allowed = "1 to 16 letters, digits and -, the first a letter, such as EUR"
            raise InvalidError("name", name, allowed)
        if minor_digits is None:
            minor_digits = _MINOR_DIGITS.get(name, 2)
        check_int("minor_digits", minor_digits, 0, 6)
        made = Currency(name=name, minor_digits=minor_digits)
        with self._database.write() as connection:
            take_advisory_lock(connection, PRICES)
            before = read_currency(connection)
            if before == made:
                return made
            if before is not None and closed_until(connection) is not None:
                raise ConflictError(f"months are closed in {before.name}: the currency stays")
            values = {"name": name, "minor_digits": minor_digits}
            if before is None:
                connection.execute(insert(site_currency).values(id=1, **values))
            else:
                connection.execute(update(site_currency).values(**values))
            data = {**values, "before": None if before is None else before.name}
            now = db_now(connection)
            record_event(connection, now, actor, "currency_set", "price", "currency", data=data)
        return made

    @retry_on_rollback
    def set(
        self,
        resource: str,
        price: Decimal | None,
        *,
        since: date | None = None,
        vm_type: str | None = None,
        actor: str,
    ) -> Price:
        """Set the price of a unit of a resource for an hour, from a day (UTC) on.

        Parameters
        ----------
        price : Decimal or None
            None: from that day on, VMs of the type have the price of all types, or none.
        since : date, optional
            Today, if it is omitted.
        vm_type : str, optional
            Only for VMs of this type, in all its revisions.

        Raises
        ------
        InvalidError
            If the price is negative or has too many digits, or the day is out of range or in a
            closed month.
        ConflictError
            If a version of that day exists, or the site has no currency.
        """
        if price is not None:
            price = _check_price(price)
        with self._database.write() as connection:
            take_advisory_lock(connection, PRICES)
            now = db_now(connection)
            made = Price(
                resource=resource,
                vm_type=vm_type,
                since=now.date() if since is None else since,
                price=price,
            )
            _check_subject(connection, made)
            if not _FIRST_DAY <= made.since <= _LAST_DAY:
                raise InvalidError("since", made.since, f"a day from {_FIRST_DAY} to {_LAST_DAY}")
            _check_open(connection, made.since)
            if read_currency(connection) is None:
                raise ConflictError("the site has no currency: fuga price currency EUR")
            if connection.execute(select(prices).where(*_is(made))).first() is not None:
                raise ConflictError(
                    f"{_subject(made)} has a version from {made.since} already: remove it first"
                )
            if (connection.scalar(select(func.count()).select_from(prices)) or 0) >= MAX_VERSIONS:
                raise ConflictError(f"there are {MAX_VERSIONS} versions of prices, the most")
            connection.execute(insert(prices).values(**_key(made), price=price))
            _record_change(connection, "price_set", made, actor)
            return store_result(connection, made)

    @retry_on_rollback
    def remove(
        self, resource: str, since: date, *, vm_type: str | None = None, actor: str
    ) -> Price:
        """Remove a version of a price; the version before it then holds on.

        Raises
        ------
        NotFoundError
            If there is no such version.
        InvalidError
            If it held in a closed month.
        """
        wanted = Price(resource=resource, vm_type=vm_type, since=since, price=None)
        with self._database.write() as connection:
            take_advisory_lock(connection, PRICES)
            row = connection.execute(select(prices).where(*_is(wanted))).one_or_none()
            if row is None:
                raise NotFoundError("price", f"{_subject(wanted)} from {since}")
            _check_open(connection, since)
            gone = Price(resource=resource, vm_type=vm_type, since=since, price=row.price)
            connection.execute(delete(prices).where(*_is(gone)))
            _record_change(connection, "price_removed", gone, actor)
        return gone


def read_currency(connection: Connection) -> Currency | None:
    """Return the site's currency, or None."""
    row = connection.execute(select(site_currency)).one_or_none()
    return None if row is None else Currency(name=row.name, minor_digits=row.minor_digits)


def usage_order(connection: Connection) -> Mapping[str, int]:
    """Return what usage and prices are of, in order: each resource, and then as borrowed VMs."""
    names = (VMS, *resource_names(connection))
    both = (each for name in names for each in (name, BORROWED + name))
    return {name: at for at, name in enumerate(both)}


def read_prices(connection: Connection) -> Sequence[Price]:
    """Return all versions, by resource, type and day."""
    order = usage_order(connection)
    found = [
        Price(resource=row.resource, vm_type=row.vm_type or None, since=row.since, price=row.price)
        for row in connection.execute(select(prices))
    ]
    return sorted(
        found, key=lambda each: (order.get(each.resource, 0), each.vm_type or "", each.since)
    )


def _check_price(price: Decimal) -> Decimal:
    """Return a price without needless zeros; raise `InvalidError` if it is out of bounds."""
    allowed = f"a number from 0 to {MAX_PRICE}, with at most {MAX_PLACES} decimal places"
    if not price.is_finite() or not 0 <= price <= MAX_PRICE or not -60 <= _exponent(price) <= 9:
        raise InvalidError("price", price, allowed)
    price = plain_decimal(price)
    if -_exponent(price) > MAX_PLACES:
        raise InvalidError("price", price, allowed)
    return abs(price)


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - of a finite number
    return exponent


def _check_subject(connection: Connection, price: Price) -> None:
    """Raise unless the resource and the VM type of a price are known."""
    known = tuple(usage_order(connection))
    if price.resource not in known:
        raise UnknownNameError("resource", "resource", price.resource, known=known)
    if price.vm_type is not None:
        of_name = select(vm_types.c.id).where(vm_types.c.name == price.vm_type).limit(1)
        if connection.execute(of_name).first() is None:
            raise UnknownNameError("vm_type", "VM type", price.vm_type)


def _check_open(connection: Connection, since: date) -> None:
    """Raise `InvalidError` for a day of a closed month: a price of then has been charged."""
    first = closed_until(connection)
    if first is not None and since < first:
        allowed = f"a day from {first} on: the months before are closed"
        raise InvalidError("since", since.isoformat(), allowed)


def _key(price: Price) -> dict[str, object]:
    return {"resource": price.resource, "vm_type": price.vm_type or "", "since": price.since}


def _is(price: Price) -> tuple[ColumnElement[bool], ...]:
    return tuple(prices.c[name] == value for name, value in _key(price).items())


def _subject(price: Price) -> str:
    of_type = "" if price.vm_type is None else f" of type {price.vm_type}"
    return f"the price of {price.resource}{of_type}"


def _record_change(connection: Connection, kind: str, price: Price, actor: str) -> None:
    data = {
        "vm_type": price.vm_type,
        "since": price.since.isoformat(),
        "price": None if price.price is None else format(price.price, "f"),
    }
    now = db_now(connection)
    record_event(connection, now, actor, kind, "price", price.resource, data=data)
