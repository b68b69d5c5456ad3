"""Read the native format of traces: rows as chunks of requests."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from placement import FloatArray
from registry import InvalidError
from registry.requests import MembershipRule, Rules, check_rules
from simulation.errors import InputError
from simulation.traces.bad_rows import BadRows, RowError
from simulation.traces.chunks import Chunk
from simulation.traces.request_constraints import RequestConstraints

#: Columns that are no resources.
COLUMNS: Final = (
    "arrival_s",
    "lifetime_s",
    "tenant",
    "vm_type",
    "count",
    "min_count",
    "on_host",
    "wait_at_most_s",
    "requires",
    "forbids",
    "prefers",
    "zone",
    "hosts",
    "spread",
    "anti_affinity",
    "affinity",
)
_OF_CONSTRAINTS: Final = COLUMNS[8:]
CHUNK_ROWS: Final = 8192
_MOST: Final = 2**40  #: of any quantity of one VM
_MAX_VMS: Final = 1_000_000
_NO_CONSTRAINTS: Final = RequestConstraints()

#: A row as a reader gives it: its line, what its columns say or what is wrong with it, and
#: the part of the file that is read with it.
Row: TypeAlias = tuple[int, Mapping[str, Any] | RowError, float]
Source: TypeAlias = Callable[[], Iterator[Row]]
Keep: TypeAlias = Callable[[str], bool]


def resources_of(columns: Iterable[str], types: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the resources that a native trace of these columns and VM types may request."""
    named = [name for name in columns if name not in COLUMNS]
    if "vm_type" in columns:
        named += sorted({name for amounts in types.values() for name in amounts} - {*named})
    return ordered_resources(named)


def ordered_resources(names: Collection[str]) -> tuple[str, ...]:
    """Return resources in the usual order: CPU, memory, disk, then the others by name."""
    first = ("vcpus", "cpu_milli", "memory_mib", "disk_gib")
    return tuple(name for name in first if name in names) + tuple(sorted(set(names) - set(first)))


@dataclass(slots=True)
class NativeTrace:
    """A trace in the native format, as chunks of requests.

    Parameters
    ----------
    source
        Gives the rows from their beginning; called for each reading.
    faults
        Collects bad rows; each reading begins it again.
    keep
        Which tenants take part; None: all.
    """

    source: Source
    resources: tuple[str, ...]
    faults: BadRows
    types: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    keep: Keep | None = None
    fold: int = 0  #: number of tenants after folding; 0: not folded

    def chunks(self) -> Iterator[Chunk]:
        """Read the trace's requests from the beginning, chunk by chunk."""
        self.faults.count = 0
        self.faults.shown.clear()
        rows: list[_RequestRow] = []
        last, read = -math.inf, 0.0
        for line, row, read in self.source():
            try:
                requested = self._request_row(row, line)
            except RowError as error:
                self.faults.add(line, str(error))
                continue
            if requested.arrival_s < last:
                raise InputError(
                    f"{self.faults.file}:{line}",
                    f"arrival_s {requested.arrival_s:g} is before {last:g}, of a row above; "
                    "sort the file by arrival_s",
                )
            last = requested.arrival_s
            if self.keep is not None and not self.keep(requested.tenant):
                continue
            rows.append(requested)
            if len(rows) == CHUNK_ROWS:
                yield self._make_chunk(rows, read)
                rows = []
        if rows:
            yield self._make_chunk(rows, read)

    def _request_row(self, row: Mapping[str, Any] | RowError, line: int) -> _RequestRow:
        """Check a row of the trace, and return its request."""
        if isinstance(row, RowError):
            raise row
        return _RequestRow(
            arrival_s=_read_number(row, "arrival_s", minimum=0),
            lifetime_s=_read_seconds(row, "lifetime_s"),
            tenant=self.tenant_of(row.get("tenant"), line),
            demand=self._read_demand(row),
            count=(count := _read_whole(row, "count", 1, _MAX_VMS)),
            min_count=_read_whole(row, "min_count", 1, count),
            constraints=_read_constraints(row, count),
            on_host=_starting_host(row),
            wait_at_most_s=_read_seconds(row, "wait_at_most_s"),
        )

    def tenant_of(self, name: Any, line: int) -> str:
        """Return the tenant of a trace's row.

        If tenants are folded, a hash of the name picks one of ``fold`` tenants; a row without
        a name is hashed by its line number.
        """
        text = None if name is None or name == "" else str(name)
        if not self.fold:
            return text or "all"
        number = zlib.crc32((text or f"row {line}").encode()) % self.fold
        return f"tenant-{number:0{len(str(self.fold - 1))}}"

    def _read_demand(self, row: Mapping[str, Any]) -> tuple[int, ...]:
        """Read the demand of one VM from a row: its type's, or the row's own amounts."""
        name = row.get("vm_type")
        its_type: Mapping[str, int] = {}
        if name not in (None, ""):
            if name not in self.types:
                raise RowError(f"vm_type: no type {str(name)!r} in the file of types")
            its_type = self.types[str(name)]
        return tuple(
            _read_whole(row, resource, its_type.get(resource, 0), _MOST, minimum=0)
            for resource in self.resources
        )

    def _make_chunk(self, rows: Sequence[_RequestRow], read: float) -> Chunk:
        """Return the requests of some rows as a chunk."""
        return Chunk(
            arrival_s=np.array([row.arrival_s for row in rows]),
            lifetime_s=np.array([row.lifetime_s for row in rows]),
            tenant=tuple(row.tenant for row in rows),
            demand=np.array([row.demand for row in rows], dtype=np.int64),
            count=np.array([row.count for row in rows], dtype=np.int64),
            min_count=np.array([row.min_count for row in rows], dtype=np.int64),
            request_constraints=tuple(row.constraints for row in rows),
            on_host=_hosts_of(rows),
            read=read,
            wait_at_most_s=_patience_of(rows),
        )


def _hosts_of(rows: Sequence[_RequestRow]) -> tuple[str | None, ...]:
    """Return the hosts on which rows' VMs run already; () if none does."""
    hosts = tuple(row.on_host for row in rows)
    return hosts if any(hosts) else ()


def _patience_of(rows: Sequence[_RequestRow]) -> FloatArray | None:
    """Return the longest wait of each row's VMs, (n,); None if none is bounded."""
    patience = np.array([row.wait_at_most_s for row in rows])
    return patience if np.isfinite(patience).any() else None


@dataclass(frozen=True, slots=True)
class _RequestRow:
    """A checked row of the trace."""

    arrival_s: float
    lifetime_s: float
    tenant: str
    demand: tuple[int, ...]
    count: int
    min_count: int
    constraints: RequestConstraints
    on_host: str | None
    wait_at_most_s: float


def _read_number(row: Mapping[str, Any], name: str, *, minimum: float) -> float:
    """Read a number of a row, at least ``minimum``."""
    found: Any = row.get(name)
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise RowError(f"{name}: found {found!r}, expected a number") from None
    if not minimum <= value < math.inf:
        raise RowError(f"{name}: found {found!r}, expected {minimum:g} or more")
    return value


def _is_empty(found: Any) -> bool:
    """Return whether a cell of a row is empty, or a missing value of Parquet."""
    return found is None or found == "" or (isinstance(found, float) and math.isnan(found))


def _read_seconds(row: Mapping[str, Any], name: str) -> float:
    """Read a length of time of a row, in seconds; infinite if empty."""
    return math.inf if _is_empty(row.get(name)) else _read_number(row, name, minimum=0)


def _read_whole(
    row: Mapping[str, Any], name: str, default: int, maximum: int, *, minimum: int = 1
) -> int:
    """Read a whole number of a row within bounds; ``default`` if empty."""
    found: Any = row.get(name)
    if _is_empty(found):
        return default
    try:
        value = int(found)
        exact = value == float(found)
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact or not minimum <= value <= maximum:
        raise RowError(
            f"{name}: found {found!r}, expected a whole number from {minimum} to {maximum}"
        )
    return value


def _starting_host(row: Mapping[str, Any]) -> str | None:
    """Return the host on which a row's VMs run already when the trace begins, or None."""
    found = row.get("on_host")
    if _is_empty(found):
        return None
    if float(row["arrival_s"]) > 0:
        raise RowError(f"on_host: found {found!r}, allowed only where arrival_s is 0")
    return str(found)


def _read_words(found: Any) -> tuple[str, ...]:
    """Read words of a row's cell from ``a;b`` or a list."""
    if found is None or found == "":
        return ()
    if isinstance(found, str):
        return tuple(sorted({word.strip() for word in found.split(";") if word.strip()}))
    return tuple(sorted(set(map(str, found))))


def _read_membership(found: Any) -> MembershipRule | None:
    """Read a VM group of a row's cell from ``name``, or ``name:soft``."""
    if found is None or found == "":
        return None
    name, _, how = str(found).partition(":")
    if how not in ("", "soft"):
        raise RowError(f"group: found {found!r}, expected NAME or NAME:soft")
    return MembershipRule(group=name, soft=how == "soft")


def _read_constraints(row: Mapping[str, Any], count: int) -> RequestConstraints:
    """Read the placement constraints of a row's request."""
    said = [row.get(name) for name in _OF_CONSTRAINTS]
    if all(each is None or each == "" for each in said):
        return _NO_CONSTRAINTS
    try:
        rules = check_rules(
            Rules(
                forbids=_read_words(row.get("forbids")),
                prefers=_read_words(row.get("prefers")),
                zone=row.get("zone") or None,
                anti_affinity=_read_membership(row.get("anti_affinity")),
                affinity=_read_membership(row.get("affinity")),
                spread=row.get("spread") or None,
            ),
            count,
        )
    except InvalidError as error:
        raise RowError(str(error)) from None
    return RequestConstraints(
        requires=_read_words(row.get("requires")),
        hosts=_read_words(row.get("hosts")) or None,
        rules=rules,
    )
