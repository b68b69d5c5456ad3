"""Capacity of classes of hosts by hour, with what was committed, used and waited for.

A sample a minute is added to the sums of the present hour, which are one row. When an hour is
over, it goes to the row of its day and class. Hours are those of the database's clock.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select

from plain_text import similar_names
from registry.capacity.capacity_samples import (
    Amounts,
    ClassSample,
    add_amounts,
    read_classes,
    read_site,
)
from registry.capacity.packed_days import (
    MEASURES,
    Hour,
    merge_hours,
    pack_day,
    rounded_mean,
    unpack_day,
)
from registry.catalogue.resources import resource_names
from registry.db.bulk import insert_rows, update_rows
from registry.db.clock import db_now, earlier_time
from registry.db.engine import Repository, retry_on_rollback
from registry.db.packed_json import pack_json, unpack_json
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import capacity_classes, capacity_days, capacity_samples
from registry.errors import InvalidError, UnknownNameError
from registry.records.capacity import CapacityPoint
from registry.records.liveness import Lease
from registry.rounds.leases import CONTROL_LEASE, check_epoch

#: How long hours are kept: two years, with a leap day.
KEPT: Final = timedelta(days=731)
MAX_SPAN: Final = KEPT + timedelta(days=1)
#: Classes that have rows of their own at a time; hosts of further classes are one class.
MAX_CLASSES: Final = 64
#: Samples that lie closer together count once: two control centres may both take one.
APART: Final = timedelta(seconds=30)
OTHERS: Final = "others"
NO_LABELS: Final = "no labels"
_SITE_ID: Final = 0
_OTHERS_ID: Final = 1
_FIRST_ID: Final = 2
#: Sum, maximum and number of samples by resource and measure, by class.
_Sums = dict[int, dict[tuple[str, str], list[int]]]
#: Hours by class, of one day.
_Day = defaultdict[int, dict[int, Hour]]


class CapacityHistory(Repository):
    """Records the capacity of classes of hosts over time, and reads it."""

    @retry_on_rollback
    def sample(self, lease: Lease, *, by: datetime | None = None) -> bool:
        """Add the present amounts to those of the hour; return False if that was just done.

        The hour is that of the earlier of the database's time and ``by``.

        Raises
        ------
        StaleEpochError
            If the lease is not the current one of the control centre.
        """
        with self._database.read() as connection:
            classes = read_classes(connection)
            site = read_site(connection, classes)
        with self._database.write() as connection:
            check_epoch(connection, CONTROL_LEASE, lease.holder, lease.epoch, until_commit=True)
            at = earlier_time(db_now(connection), by)
            hour = at.replace(minute=0, second=0, microsecond=0)
            before = _read_present_hour(connection)
            if before is not None and timedelta(0) <= at - before.sampled_at < APART:
                return False
            sums: _Sums = before.sums if before is not None and before.hour == hour else {}
            if before is not None and before.hour != hour:
                _store_hour(connection, before)
            amounts = _amounts_by_id(connection, classes, set(sums))
            _add_sample(sums, {_SITE_ID: site, **amounts})
            values = {"hour": hour, "sampled_at": at, "sums": _pack_sums(sums)}
            if before is None:
                connection.execute(insert(capacity_samples).values(id=1, **values))
            else:
                update_rows(connection, capacity_samples, [{"id": 1, **values}])
        return True

    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes of hosts that have a history."""
        with self._database.read() as connection:
            return tuple(sorted(_class_names(connection)))

    def list(
        self,
        *,
        since: datetime,
        until: datetime | None = None,
        by_day: bool = False,
        host_class: str | None = None,
        resource: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[CapacityPoint]:
        """Return a page of the hours, or days, of a period by time, then resource.

        Hours without samples are left out. The present hour has its samples so far.

        Parameters
        ----------
        host_class : str, optional
            Name of a class of hosts: its labels, joined by commas. None: the whole site.

        Raises
        ------
        InvalidError
            If ``until`` is not after ``since``, or the period is longer than two years.
        UnknownNameError
            If there is no such class or resource.
        """
        limit = check_limit(limit)
        after = None if cursor is None else _parse_cursor(cursor)
        with self._reading(since, until, host_class, resource) as (connection, period):
            # Days before the cursor are not unpacked, nor those after the page.
            first = period.since if after is None else max(period.since, after[0])
            points = period.points(connection, first, by_day=by_day)
            wanted = (each for each in points if after is None or (each.at, each.resource) > after)
            rows = tuple(itertools.islice(wanted, limit + 1))
        return page_of(rows, limit, lambda each: (each.at.isoformat(), each.resource))

    def read(
        self,
        *,
        since: datetime,
        until: datetime | None = None,
        by_day: bool = False,
        host_class: str | None = None,
        resource: str | None = None,
    ) -> Sequence[CapacityPoint]:
        """Return all of which `list` returns a page."""
        with self._reading(since, until, host_class, resource) as (connection, period):
            return tuple(period.points(connection, period.since, by_day=by_day))

    @contextmanager
    def _reading(
        self, since: datetime, until: datetime | None, host_class: str | None, resource: str | None
    ) -> Iterator[tuple[Connection, _Selection]]:
        """Begin to read a period, which is checked."""
        if until is not None and not timedelta(0) < until - since <= MAX_SPAN:
            allowed = f"a time after {since.isoformat()} by at most {MAX_SPAN.days} days"
            raise InvalidError("until", until.isoformat(), allowed)
        with self._database.read() as connection:
            until = earlier_time(db_now(connection), until)
            names = resource_names(connection)
            if resource is not None and resource not in names:
                known = similar_names(resource, names)
                raise UnknownNameError("resource", "resource", resource, known=known)
            class_id = _find_class(connection, host_class)
            yield connection, _Selection(max(since, until - MAX_SPAN), until, class_id, resource)


@dataclass(frozen=True, slots=True)
class _Selection:
    """What is read: a period of one class, and one resource or all."""

    since: datetime
    until: datetime
    class_id: int
    resource: str | None

    def points(
        self, connection: Connection, first: datetime, *, by_day: bool
    ) -> Iterator[CapacityPoint]:
        """Yield the points from a time of the period on; a day is cut at the period's ends."""
        days = _read_days(connection, self.class_id, first, self.until)
        for day, hours in days:
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
            times = {midnight + timedelta(hours=number): hours[number] for number in sorted(hours)}
            inside = {at: times[at] for at in times if self.since <= at < self.until}
            if by_day and inside:
                inside = {midnight: merge_hours(list(inside.values()))}
            for at, hour in inside.items():
                for point in _points(at, hour):
                    if self.resource is None or point.resource == self.resource:
                        yield point


def _parse_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and the resource of the last point of a page."""
    at, resource = decode_cursor(cursor, str, str)
    try:
        return datetime.fromisoformat(str(at)).astimezone(UTC), str(resource)
    except (ValueError, OverflowError):
        raise InvalidError("cursor", cursor, "a cursor of an earlier page of this list") from None


def _points(at: datetime, hour: Hour) -> Iterator[CapacityPoint]:
    """Yield a point for each resource of an hour."""
    for resource in sorted({resource for resource, _ in hour.levels}):
        levels: dict[str, Any] = {}
        for measure in MEASURES:
            unknown = (None, None) if measure in {"used", "waiting"} else (0, 0)
            mean, most = hour.levels.get((resource, measure), unknown)
            levels |= {f"{measure}_mean": mean, f"{measure}_max": most}
        yield CapacityPoint(at=at, resource=resource, samples=hour.samples, **levels)


@dataclass(frozen=True, slots=True)
class _PresentHour:
    """The hour of the last sample, with its sums."""

    hour: datetime
    sampled_at: datetime
    sums: _Sums

    def to_hours(self) -> Mapping[int, Hour]:
        """Return the hour of each class, with means."""
        return {
            class_id: Hour(
                samples=max(count for _, _, count in sums.values()),
                levels={
                    key: (rounded_mean(total, count), most)
                    for key, (total, most, count) in sums.items()
                },
            )
            for class_id, sums in self.sums.items()
            if sums
        }


def _read_present_hour(connection: Connection) -> _PresentHour | None:
    row = connection.execute(select(capacity_samples)).one_or_none()
    if row is None:
        return None
    return _PresentHour(
        row.hour,
        row.sampled_at,
        {
            int(class_id): {
                (resource, measure): values
                for resource, of_resource in resources.items()
                for measure, values in of_resource.items()
            }
            for class_id, resources in unpack_json(row.sums).items()
        },
    )


def _pack_sums(sums: _Sums) -> bytes:
    document: dict[str, dict[str, dict[str, list[int]]]] = {}
    for class_id, of_class in sums.items():
        resources = document.setdefault(str(class_id), {})
        for (resource, measure), values in of_class.items():
            resources.setdefault(resource, {})[measure] = values
    return pack_json(document)


def _add_sample(sums: _Sums, amounts: Mapping[int, Amounts]) -> None:
    for class_id, of_class in amounts.items():
        of_hour = sums.setdefault(class_id, {})
        for key, amount in of_class.items():
            total, most, count = of_hour.get(key, (0, 0, 0))
            of_hour[key] = [total + amount, max(most, amount), count + 1]


def _store_hour(connection: Connection, present: _PresentHour) -> None:
    """Add an hour that is over to the rows of its day."""
    day = present.hour.date()
    hours = _read_day(connection, day)
    _put_hour(hours, present)
    packed = [
        {"day": day, "class_id": class_id, "hours": pack_day(of_class)}
        for class_id, of_class in sorted(hours.items())
    ]
    connection.execute(delete(capacity_days).where(capacity_days.c.day == day))
    connection.execute(insert(capacity_days), packed)


def _put_hour(hours: _Day, present: _PresentHour) -> None:
    """Put an hour in its day, unless the day has it from at least twice as many samples.

    The clock may have stepped back to an hour that is in the day already. Samples of both are not
    mixed: the last measurement counts, unless the clock soon left the hour again.
    """
    number, found = present.hour.hour, present.to_hours()
    before = hours[_SITE_ID].get(number)
    if before is not None and before.samples > 2 * found[_SITE_ID].samples:
        return
    for of_class in hours.values():
        of_class.pop(number, None)
    for class_id, hour in found.items():
        hours[class_id][number] = hour


def _read_days(
    connection: Connection, class_id: int, since: datetime, until: datetime
) -> Iterator[tuple[date, Mapping[int, Hour]]]:
    """Yield the days of a class that a period touches, with their hours."""
    first, last = since.astimezone(UTC).date(), until.astimezone(UTC).date()
    query = select(capacity_days).where(
        capacity_days.c.day.between(first, last), capacity_days.c.class_id == class_id
    )
    packed = {row.day: row.hours for row in connection.execute(query)}
    present = _read_present_hour(connection)
    today = None if present is None else present.hour.date()
    for day in sorted({*packed, *([] if today is None else [today])}):
        hours: _Day = defaultdict(dict)
        if day in packed:
            hours[class_id] = unpack_day(packed[day])
        if present is not None and day == today:
            if class_id != _SITE_ID:  # `_put_hour` compares the hour with the site's
                hours[_SITE_ID] = _read_day(connection, day).get(_SITE_ID, {})
            _put_hour(hours, present)
        yield day, hours[class_id]


def _read_day(connection: Connection, day: date) -> _Day:
    """Return the hours of all classes on a day."""
    query = select(capacity_days).where(capacity_days.c.day == day)
    found = {row.class_id: unpack_day(row.hours) for row in connection.execute(query)}
    return defaultdict(dict, found)


def _amounts_by_id(
    connection: Connection, classes: Mapping[str, ClassSample], in_use: set[int]
) -> Mapping[int, Amounts]:
    """Return the amounts of each class by its id; classes beyond `MAX_CLASSES` are together.

    A class keeps its id while it has hosts or a history. New classes get one in order of size.
    """
    ids = {row.labels: row.id for row in connection.execute(select(capacity_classes))}
    new = sorted(classes.keys() - ids.keys(), key=lambda each: (-classes[each].hosts, each))
    present = {ids[each] for each in ids.keys() & classes.keys()}
    room = max(0, MAX_CLASSES - len(present))
    if new[:room]:
        _delete_unused_classes(connection, present | in_use)
        first = 1 + max(ids.values(), default=_FIRST_ID - 1)
        added = {labels: first + place for place, labels in enumerate(new[:room])}
        rows = [{"id": class_id, "labels": labels} for labels, class_id in added.items()]
        insert_rows(connection, capacity_classes, rows)
        ids |= added
    found: defaultdict[int, Amounts] = defaultdict(dict)
    for labels, sample in classes.items():
        add_amounts(found[ids.get(labels, _OTHERS_ID)], sample.amounts)
    return found


def _delete_unused_classes(connection: Connection, in_use: set[int]) -> None:
    """Delete the names of classes that are not in use and have no history."""
    recorded = select(capacity_days.c.class_id)
    unused = capacity_classes.c.id.not_in(recorded) & capacity_classes.c.id.not_in(in_use)
    connection.execute(delete(capacity_classes).where(unused))


def _class_names(connection: Connection) -> Mapping[str, int]:
    """Return the ids of classes that have a history, by name."""
    ids = {row.labels or NO_LABELS: row.id for row in connection.execute(select(capacity_classes))}
    others = select(func.count()).where(capacity_days.c.class_id == _OTHERS_ID)
    return ids | ({OTHERS: _OTHERS_ID} if connection.scalar(others) else {})


def _find_class(connection: Connection, name: str | None) -> int:
    """Return the id of a class, or that of the whole site; labels may come in any order."""
    if name is None:
        return _SITE_ID
    ids = _class_names(connection)
    found = ids.get(name, ids.get(",".join(sorted(set(name.split(","))))))
    if found is None:
        known = similar_names(name, ids) or sorted(ids)[:5]
        raise UnknownNameError("class", "class of hosts", name, known=known)
    return found
