"""Public traces as rows of the native format.

Each reader turns the rows of one published format into native rows, a few at a
time. Terms of use are the publishers'; docs/simulate.md names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulation.errors import InputError
from simulation.traces import azure_packing, google_tasks
from simulation.traces.bad_rows import RowError
from simulation.traces.native import Row, resources_of
from simulation.traces.table_files import read_columns, read_rows

#: Models of the Alibaba cluster's GPUs; a task may name those that will do.
_GPU_MODELS: Final = ("A10", "G1", "G2", "G3", "P100", "T4", "V100M16", "V100M32")
_AZURE_VMTABLE: Final = (
    "vmid",
    "subscriptionid",
    "deploymentid",
    "vmcreated",
    "vmdeleted",
    "maxcpu",
    "avgcpu",
    "p95maxcpu",
    "vmcategory",
    "vmcorecount",
    "vmmemory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A published format of traces: how it is recognised, and how its rows become native rows."""

    name: str
    needs: frozenset[str]  #: columns by which it is known
    resources: tuple[str, ...]  #: empty: whatever columns are no others
    convert: Callable[[Iterable[Row]], Iterator[Row]]
    columns: Sequence[str] | None = None  #: of files without a line of names
    read: Callable[[Path], Iterator[Row]] | None = None  #: of files that are no plain table


def _native_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows of a trace that is in the native format already."""
    return iter(rows)


def _convert_rows(
    rows: Iterable[Row], native: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Iterator[Row]:
    """Convert a trace row by row; report what a row lacks or misspells with its line."""
    for line, row, read in rows:
        if isinstance(row, RowError):
            yield line, row, read
            continue
        try:
            yield line, native(row), read
        except (ValueError, TypeError) as error:
            yield line, error if isinstance(error, RowError) else RowError(str(error)), read


def _sort_by_arrival(rows: Iterable[Row]) -> Iterator[Row]:
    """Sort the rows of a trace whose format has no order; these are small."""
    listed = list(rows)

    def key(row: Row) -> float:
        """Return when a row's request arrives; 0 for a bad row."""
        arrival = row[1]
        return 0.0 if isinstance(arrival, RowError) else float(arrival["arrival_s"])

    total = max(len(listed), 1)
    for place, (line, row, _) in enumerate(sorted(listed, key=key)):
        yield line, row, (place + 1) / total


def _convert_azure_batches(rows: Iterable[Row]) -> Iterator[Row]:
    """Convert Azure's batches: VMs of one batch, size and lifetime become a request.

    Lifetimes are the upper bounds of their bins; VMs that outlived the window never end.
    """
    batch: tuple[Any, Any] | None = None
    parts: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
    read = 0.0
    for line, row, read in rows:
        if isinstance(row, RowError):
            yield line, row, read
            continue
        try:
            censored = str(row["censored"]).lower() in ("true", "1")
            lifetime = None if censored else float(row["duration_max_s"])
            memory_mib = _gib_to_mib(row["memory_gb"])
        except ValueError as error:
            yield line, RowError(str(error)), read
            continue
        if (row["arrival_s"], row["batch_id"]) != batch:
            yield from ((at, each, read) for at, each in parts.values())
            parts, batch = {}, (row["arrival_s"], row["batch_id"])
        key = (row["vcpus"], memory_mib, lifetime)
        if key in parts:
            parts[key][1]["count"] += 1
        else:
            parts[key] = (
                line,
                {
                    "arrival_s": row["arrival_s"],
                    "lifetime_s": lifetime,
                    "tenant": f"batch-{row['batch_id']}",
                    "count": 1,
                    "vcpus": row["vcpus"],
                    "memory_mib": memory_mib,
                },
            )
    yield from ((at, each, read) for at, each in parts.values())


def _convert_azure_vmtable(rows: Iterable[Row]) -> Iterator[Row]:
    """Convert Azure's table of VMs to requests of their subscriptions."""

    def native(row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert one VM."""
        created, deleted = float(row["vmcreated"]), float(row["vmdeleted"])
        return {
            "arrival_s": created,
            "lifetime_s": deleted - created,
            "tenant": row["subscriptionid"],
            "vcpus": row["vmcorecount"],
            "memory_mib": _gib_to_mib(row["vmmemory"]),
        }

    return _sort_by_arrival(_convert_rows(rows, native))


def _convert_huawei(rows: Iterable[Row]) -> Iterator[Row]:
    """Convert Huawei's trace of VMs to requests."""

    def native(row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert one VM."""
        return {
            "arrival_s": row["arrival_s"],
            "lifetime_s": row["lifetime_s"],
            "vcpus": row["vcpus"],
            "memory_mib": _gib_to_mib(row["memory_gb"]),
        }

    return _convert_rows(rows, native)


def _convert_alibaba_gpu(rows: Iterable[Row]) -> Iterator[Row]:
    """Convert Alibaba's tasks with GPUs to requests; the quality class is the tenant.

    GPUs count in thousandths.
    """

    def native(row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert one task."""
        created = float(row["creation_time"])
        wanted = set(filter(None, str(row["gpu_spec"] or "").split("|")))
        others = [f"gpu={model}" for model in _GPU_MODELS if wanted and model not in wanted]
        ended = row["deletion_time"]
        return {
            "arrival_s": created,
            "lifetime_s": None if ended in (None, "") else float(ended) - created,
            "tenant": row["qos"],
            "cpu_milli": row["cpu_milli"],
            "memory_mib": row["memory_mib"],
            "gpu_milli": int(row["num_gpu"]) * int(row["gpu_milli"]),
            "forbids": ";".join(others),
        }

    return _sort_by_arrival(_convert_rows(rows, native))


def _convert_alibaba_dlrm(rows: Iterable[Row]) -> Iterator[Row]:
    """Convert Alibaba's DLRM instances to requests of their applications.

    Instances from before the trace arrive at 0.
    """

    def native(row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert one instance."""
        created = float(row["creation_time"] or 0)
        alone = int(row["max_instance_per_node"]) == 1
        return {
            "arrival_s": created,
            "lifetime_s": float(row["deletion_time"]) - created if row["deletion_time"] else None,
            "tenant": row["app_name"],
            "vcpus": row["cpu_request"],
            "memory_mib": _gib_to_mib(row["memory_request"]),
            "disk_gib": _round_up(row["disk_request"]),
            "gpu": row["gpu_request"],
            "rdma_percent": row["rdma_request"],
            "anti_affinity": "alone" if alone else None,
        }

    return _sort_by_arrival(_convert_rows(rows, native))


def _gib_to_mib(gib: Any) -> int:
    """Return GiB of a trace in MiB, rounded up."""
    return _round_up(float(gib) * 1024)


def _round_up(amount: Any) -> int:
    """Return an amount of a trace as a whole number, rounded up."""
    value = float(amount)
    return int(value) if value == int(value) else int(value) + 1


FORMATS: Final = (
    TraceFormat(
        name="azure-v1-batches",
        needs=frozenset({"arrival_s", "batch_id", "duration_max_s", "censored", "memory_gb"}),
        resources=("vcpus", "memory_mib"),
        convert=_convert_azure_batches,
    ),
    TraceFormat(
        name="huawei-east-1",
        needs=frozenset({"vm_id", "arrival_s", "lifetime_s", "vcpus", "memory_gb"}),
        resources=("vcpus", "memory_mib"),
        convert=_convert_huawei,
    ),
    TraceFormat(
        name="alibaba-gpu-2023",
        needs=frozenset({"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time"}),
        resources=("cpu_milli", "memory_mib", "gpu_milli"),
        convert=_convert_alibaba_gpu,
    ),
    TraceFormat(
        name="alibaba-dlrm-2025",
        needs=frozenset({"app_name", "cpu_request", "rdma_request", "creation_time"}),
        resources=("vcpus", "memory_mib", "disk_gib", "gpu", "rdma_percent"),
        convert=_convert_alibaba_dlrm,
    ),
    TraceFormat(
        name="azure-packing-2020",
        needs=azure_packing.NEEDS,
        resources=azure_packing.RESOURCES,
        convert=_native_rows,
        read=azure_packing.packing_requests,
    ),
    TraceFormat(name="native", needs=frozenset({"arrival_s"}), resources=(), convert=_native_rows),
    TraceFormat(
        name="azure-v1-vmtable",
        needs=frozenset(_AZURE_VMTABLE),
        resources=("vcpus", "memory_mib"),
        convert=_convert_azure_vmtable,
        columns=_AZURE_VMTABLE,
    ),
    TraceFormat(
        name="google-2011-tasks",
        needs=frozenset(google_tasks.COLUMNS),
        resources=("cpu_milli", "memory_mib"),
        convert=google_tasks.requests_of_tasks,
        columns=google_tasks.COLUMNS,
    ),
)


def detect_format(path: Path, name: str | None = None) -> TraceFormat:
    """Return the trace format of this name, or the one that a file's columns match.

    Raises
    ------
    InputError
        For a name that is none, or columns that no format has.
    """
    if name is not None:
        return _format_by_name(name)
    if azure_packing.is_packing_trace(path):
        return _format_by_name("azure-packing-2020")
    columns = read_columns(path)
    for each in FORMATS:
        if each.needs <= set(columns):
            return each
    if google_tasks.is_task_events(columns):
        return _format_by_name("google-2011-tasks")
    if len(columns) == len(_AZURE_VMTABLE):
        return _format_by_name("azure-v1-vmtable")
    found = ", ".join(columns[:12])
    raise InputError(
        str(path), f"columns {found}: no format that is known; native traces have arrival_s"
    )


def _format_by_name(name: str) -> TraceFormat:
    """Return the trace format of this name; raise `InputError` for an unknown one."""
    for each in FORMATS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in FORMATS)
    raise InputError(f"--format {name}", f"one of {known}")


def make_row_reader(path: Path, its: TraceFormat) -> Callable[[], Iterator[Row]]:
    """Return a function that reads a trace file from its beginning, as native rows."""
    read = its.read
    if read is not None:
        return lambda: its.convert(read(path))
    return lambda: its.convert(read_rows(path, its.columns))


def resources_in(
    path: Path, its: TraceFormat, types: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...]:
    """Return the resources that the requests of a trace file need."""
    return its.resources or resources_of(read_columns(path), types)
