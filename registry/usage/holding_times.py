"""From when to when each assignment held its amounts, and from when to when it is charged.

An assignment holds from its creation until its release. It is charged from its activation, so a
build that fails is never charged. A VM that moved has another assignment by then: the first is
charged until the activation of the next, so that a VM is charged once.

All times are integers of microseconds since 1970 in both databases, so that sums are exact.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Select, case, func, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from registry.db.schema import assignments, requests, vms

SECOND: Final = 1_000_000  #: microseconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MicrosecondsOf(FunctionElement[int]):
    """A time as microseconds since 1970."""

    type = BigInteger()
    inherit_cache = True


@compiles(MicrosecondsOf, "postgresql")
def _compile_for_postgresql(element: MicrosecondsOf, compiler: Any, **words: Any) -> str:
    return f"(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **words)}) * 1000000)::bigint"


@compiles(MicrosecondsOf, "sqlite")
def _compile_for_sqlite(element: MicrosecondsOf, compiler: Any, **words: Any) -> str:
    # strftime() knows milliseconds only: it gets the whole seconds of the text.
    at = compiler.process(element.clauses, **words)
    return (
        f"(CAST(strftime('%s', substr({at}, 1, 19)) AS INTEGER) * 1000000"
        f" + CAST(substr({at}, 21, 6) AS INTEGER))"
    )


def to_microseconds(at: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def to_time(microseconds: int) -> datetime:
    """Return the time of a number of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def seconds(microseconds: int) -> Decimal:
    """Return microseconds as seconds, without rounding."""
    return Decimal(f"{microseconds // SECOND}.{microseconds % SECOND:06d}")


_LATER: Final = assignments.alias("later")
#: The newest assignment of a VM, as most are, has none after it: nothing is looked up.
_NEXT_ACTIVATION: Final = case(
    (
        assignments.c.generation < vms.c.generation,
        select(func.min(MicrosecondsOf(_LATER.c.activated_at)))
        .where(
            _LATER.c.vm_id == assignments.c.vm_id, _LATER.c.generation > assignments.c.generation
        )
        .correlate(assignments)
        .scalar_subquery(),
    )
)

#: Conditions with literals, so that partial indexes serve them.
IS_RELEASED: Final = assignments.c.state == literal_column("'released'")
IS_SUMMED: Final[ColumnElement[bool]] = literal_column("assignments.in_daily_usage")
IS_UNSUMMED: Final[ColumnElement[bool]] = literal_column("NOT assignments.in_daily_usage")


def least(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    """Return the lesser of two numbers; a missing ``one`` does not count."""
    return case((one < other, one), else_=other)


def greatest(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    """Return the greater of two numbers, or NULL if ``other`` is missing."""
    return case((one > other, one), else_=other)


def holding_times(now: ColumnElement[int], *columns: ColumnElement[Any]) -> Select[Any]:
    """Return a query for the times of assignments; unreleased ones hold until ``now``.

    ``charged_from`` is NULL for what was never built.
    """
    return (
        select(
            assignments.c.id,
            assignments.c.vm_id,
            assignments.c.tenant_id,
            requests.c.vm_type_id,
            MicrosecondsOf(assignments.c.created_at).label("held_from"),
            func.coalesce(MicrosecondsOf(assignments.c.released_at), now).label("held_until"),
            MicrosecondsOf(assignments.c.activated_at).label("charged_from"),
            _NEXT_ACTIVATION.label("next_from"),
            *columns,
        )
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(requests, requests.c.id == vms.c.request_id)
    )


def charged_until(times: Any) -> ColumnElement[int]:
    """Return the end of the charged time in a subquery of `holding_times`."""
    return least(times.c.next_from, times.c.held_until)
