"""Closing months: rows of usage that stay as they are, chained, and corrected by further rows."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select, update

from registry.audit.events import record_event
from registry.db.bulk import chunks
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Repository, retry_on_rollback
from registry.db.exact_decimal import plain_decimal
from registry.db.idempotency_keys import store_result
from registry.db.locks import take_advisory_lock
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.row_conversion import row_of
from registry.db.schema import assignments, closed_usage, closed_usage_lines, site_keys
from registry.errors import ConflictError, InvalidError
from registry.records.usage import ClosedEntry, EntryLeaf, EntrySignature
from registry.usage.closed_lines import CORRECTION, MONTH, ClosedLine, closed_months, closed_until
from registry.usage.costs import line_cost, minor_units_to_decimal
from registry.usage.daily_usage import SUMS, next_month
from registry.usage.entry_digests import (
    BEGINNING,
    author_leaf,
    content_digest,
    link_digest,
    tenant_leaves,
)
from registry.usage.prices import PRICES, read_currency
from registry.usage.tenant_names import TenantNames
from registry.usage.usage import ADDED_AFTER, is_due, month_period, read_lines

MAX_COST: Final = Decimal(1_000_000_000_000)
#: The most entries of a page: each has the lines of a month.
_MAX_PAGE: Final = 4
_SALT_BYTES: Final = 32
#: Signs number and link with the site's present public key; None: it cannot.
Sign = Callable[[int, str, str | None], EntrySignature | None]


class ClosedMonths(Repository):
    """Closes months, corrects them and reads their entries."""

    @retry_on_rollback
    def close(self, month: date, *, by: datetime | None = None, actor: str) -> ClosedEntry:
        """Store the usage of a month as rows that stay as they are; return their entry.

        A month can be closed a day after its end, by the database's clock and by ``by``, and
        after the month before it, unless it is the first one.

        Raises
        ------
        ConflictError
            If the month cannot be closed yet, or is closed already.
        """
        month = _first_day(month)
        with self._database.write() as connection:
            # Until this commits no price changes, and no assignment moves into the daily sums.
            take_advisory_lock(connection, PRICES)
            take_advisory_lock(connection, SUMS)
            _check_closable(connection, month, earlier_time(db_now(connection), by))
            lines = _read_month(connection, month)
            return store_result(connection, _add_entry(connection, MONTH, month, lines, actor))

    @retry_on_rollback
    def correct(
        self, month: date, tenant: str, cost: Decimal, *, reason: str, actor: str
    ) -> ClosedEntry:
        """Add a cost, which may be negative, to what a tenant had in a closed month.

        Raises
        ------
        ConflictError
            If the month is not closed, or the site has no currency.
        InvalidError
            If the cost is 0, out of bounds, or has more decimal places than the currency.
        """
        month = _first_day(month)
        with self._database.write() as connection:
            take_advisory_lock(connection, PRICES)
            if month not in closed_months(connection):
                raise ConflictError(
                    f"{month:%Y-%m} is not closed: only closed months are corrected"
                )
            currency = read_currency(connection)
            if currency is None:
                raise ConflictError("the site has no currency: fuga price currency EUR")
            _check_cost(cost, currency.minor_digits)
            names = TenantNames(connection)
            key = names.key_of("tenant", tenant)
            line = ClosedLine(
                tenant_id=key,
                tenant=tenant,
                groups=names.groups_of(key),
                vm_type=None,
                resource=CORRECTION,
                cost=cost,
            )
            made = _add_entry(connection, CORRECTION, month, [line], actor, reason=reason)
            return store_result(connection, made)

    def list(
        self, *, tenant: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[ClosedEntry]:
        """Return a page of entries, newest first, with all leaves or the contents of a tenant's.

        A page has 4 entries at most.
        """
        limit = min(check_limit(limit), _MAX_PAGE)
        query = select(closed_usage).order_by(closed_usage.c.number.desc()).limit(limit + 1)
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            query = query.where(closed_usage.c.number < before)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            lines = _read_lines_of(connection, [row.number for row in rows])
        found = [_entry_of(row, lines[row.number], tenant) for row in rows]
        return page_of(found, limit, lambda entry: (entry.number,))

    def sign(self, sign: Sign) -> int:
        """Sign the entries without a signature, the oldest first; return how many."""
        unsigned = select(closed_usage.c.number, closed_usage.c.link).where(
            closed_usage.c.signature.is_(None)
        )
        with self._database.read() as connection:
            rows = connection.execute(unsigned.order_by(closed_usage.c.number)).all()
            present = select(site_keys.c.public_key).where(site_keys.c.last_round.is_(None))
            key = connection.scalar(present.limit(1)) if rows else None
        signed = 0
        for row in rows:
            signature = sign(row.number, row.link, key)
            if signature is None:
                break
            self._store_signature(row.number, signature)
            signed += 1
        return signed

    @retry_on_rollback
    def _store_signature(self, number: int, signature: EntrySignature) -> None:
        which = (closed_usage.c.number == number, closed_usage.c.signature.is_(None))
        with self._database.write() as connection:
            connection.execute(
                update(closed_usage)
                .where(*which)
                .values(signed_by=signature.key, signature=signature.signature)
            )


def _first_day(month: date) -> date:
    if month.day != 1:
        raise InvalidError("month", month.isoformat(), "the first day of a month")
    return month


def _check_closable(connection: Connection, month: date, now: datetime) -> None:
    """Raise `ConflictError` unless a month is the next one to close, and complete."""
    following = closed_until(connection)
    if following is not None and month != following:
        if month < following:
            known = month in closed_months(connection)
            why = "is closed already" if known else "is before the first month that was closed"
            raise ConflictError(f"{month:%Y-%m} {why}")
        raise ConflictError(f"{month:%Y-%m} cannot be closed before {following:%Y-%m}")
    end = datetime.combine(next_month(month), time(), UTC)
    if now < end + ADDED_AFTER:
        raise ConflictError(
            f"{month:%Y-%m} can be closed from {end + ADDED_AFTER:%Y-%m-%d %H:%M} UTC on, a day"
            " after its end"
        )
    open_ones = select(assignments.c.id).where(is_due(end)).limit(1)
    if connection.execute(open_ones).first() is not None:
        raise ConflictError(
            f"assignments that ended in {month:%Y-%m} are not added to usage yet: the leading"
            " control centre adds them"
        )


def _read_month(connection: Connection, month: date) -> Sequence[ClosedLine]:
    """Return the lines of a month, in order of tenants, types, resources and days of prices."""
    currency = read_currency(connection)
    names = TenantNames(connection)
    found = []
    for key, held, charged in read_lines(connection, [month_period(month)]).items():
        price = None if key.version is None else key.version.price
        cost = None
        if currency is not None and price is not None and charged:
            minor_units = line_cost(charged, price, currency.minor_digits)
            cost = minor_units_to_decimal(minor_units, currency.minor_digits)
        found.append(
            ClosedLine(
                tenant_id=key.tenant_id,
                tenant=names.name_of(key.tenant_id),
                groups=names.groups_of(key.tenant_id),
                vm_type=key.vm_type,
                resource=key.resource,
                held=held,
                charged=charged,
                price=price,
                price_since=None if key.version is None else key.version.since,
                cost=cost,
            )
        )
    return sorted(
        found,
        key=lambda line: (
            line.tenant,
            line.vm_type or "",
            line.resource,
            line.price_since or date.min,
            line.price or 0,
        ),
    )


def _check_cost(cost: Decimal, minor_digits: int) -> None:
    allowed = (
        f"a number other than 0, from -{MAX_COST} to {MAX_COST}, with at most {minor_digits}"
        " decimal places"
    )
    exponent = cost.as_tuple().exponent
    if (
        not isinstance(exponent, int)
        or not 0 < abs(cost) <= MAX_COST
        or -exponent > minor_digits
        or exponent > 0
    ):
        raise InvalidError("cost", cost, allowed)


def _add_entry(
    connection: Connection,
    kind: str,
    month: date,
    lines: Sequence[ClosedLine],
    actor: str,
    *,
    reason: str | None = None,
) -> ClosedEntry:
    """Append an entry to the chain; the caller holds the lock of prices."""
    last = select(closed_usage.c.number, closed_usage.c.link)
    before = connection.execute(last.order_by(closed_usage.c.number.desc()).limit(1)).one_or_none()
    number, previous = (1, BEGINNING) if before is None else (before.number + 1, before.link)
    currency = read_currency(connection)
    now = db_now(connection)
    salt = secrets.token_bytes(_SALT_BYTES)
    leaves = [author_leaf(salt, actor), *tenant_leaves(salt, _as_stored(lines), reason)]
    unlinked = ClosedEntry(
        number=number,
        kind=kind,
        month=month,
        currency=None if currency is None else currency.name,
        minor_digits=None if currency is None else currency.minor_digits,
        created_at=now,
        previous=previous,
        content="",
        link="",
    )
    content = content_digest(unlinked, leaves)
    made = replace(unlinked, content=content, link=link_digest(previous, content))
    connection.execute(
        insert(closed_usage).values(
            **row_of(closed_usage, made), author=actor, reason=reason, salt=salt
        )
    )
    numbered = [{"entry": number, "position": at, **line.to_row()} for at, line in enumerate(lines)]
    for some in chunks(numbered):
        connection.execute(insert(closed_usage_lines), list(some))
    record_event(
        connection,
        now,
        actor,
        "usage_closed" if kind == MONTH else "usage_corrected",
        "usage",
        f"{month:%Y-%m}",
        tenant=lines[0].tenant if kind == CORRECTION else None,
        reason=reason,
        data={"entry": number, "link": made.link, "lines": len(lines)},
    )
    return made


def _as_stored(lines: Iterable[ClosedLine]) -> Iterable[ClosedLine]:
    """Yield lines as they are read again: with numbers that have no zeros at their ends."""
    for line in lines:
        cost = None if line.cost is None else plain_decimal(line.cost)
        yield replace(line, cost=cost)


def _read_lines_of(
    connection: Connection, numbers: Sequence[int]
) -> defaultdict[int, list[ClosedLine]]:
    """Return the lines of entries, each in the order of their positions."""
    found: defaultdict[int, list[ClosedLine]] = defaultdict(list)
    query = (
        select(closed_usage_lines)
        .where(closed_usage_lines.c.entry.in_(numbers))
        .order_by(closed_usage_lines.c.entry, closed_usage_lines.c.position)
    )
    for row in connection.execute(query):
        found[row.entry].append(ClosedLine.from_row(row))
    return found


def _entry_of(row: Row[Any], lines: Sequence[ClosedLine], tenant: str | None) -> ClosedEntry:
    """Return an entry with its leaves; nothing is verified here, as the caller does that."""
    leaves = [author_leaf(row.salt, row.author), *tenant_leaves(row.salt, lines, row.reason)]
    shown = [
        leaf if tenant is None or leaf.tenant == tenant else EntryLeaf(digest=leaf.digest)
        for leaf in leaves
    ]
    signed = None
    if row.signature is not None:
        signed = EntrySignature(key=row.signed_by, signature=row.signature)
    return ClosedEntry(
        number=row.number,
        kind=row.kind,
        month=row.month,
        currency=row.currency,
        minor_digits=row.minor_digits,
        created_at=row.created_at,
        previous=row.previous,
        content=row.content,
        link=row.link,
        signed=signed,
        leaves=tuple(sorted(shown, key=lambda leaf: leaf.digest)),
    )
