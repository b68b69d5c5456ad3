"""Time series as files: Parquet, or CSV for those who have no reader of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulation.metrics.recorder import SeriesRecorder
from simulation.slots.engine import Engine


def write_tables(
    folder: Path, recorder: SeriesRecorder, engine: Engine, hosts: Sequence[str], *, as_csv: bool
) -> None:
    """Write slots, shares, placements, hosts, tenants and moves of a simulation."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    names = pa.array(engine.names.tenants.values or [""])
    host_names = pa.array(hosts)
    slots = recorder.slots
    placements, shares, pictures = recorder.placements, recorder.shares, recorder.pictures
    # Names are put in by Arrow: as objects of Python they would outweigh all else.
    tables: dict[str, Mapping[str, Any]] = {
        "slots": {name: slots.column(name) for name in slots.names},
        "shares": {
            "slot": _to_integers(shares.column("slot")),
            "tenant": names.take(pa.array(_to_integers(shares.column("tenant")))),
            "dominant_share": shares.column("share"),
        },
        "placements": {
            "request": _to_integers(placements.column("request")),
            "tenant": names.take(pa.array(_to_integers(placements.column("tenant")))),
            "host": host_names.take(pa.array(_to_integers(placements.column("host")))),
            "count": _to_integers(placements.column("count")),
            "arrival_s": placements.column("arrival_s"),
            "start_s": placements.column("start_s"),
            "end_s": placements.column("end_s"),
        },
        "hosts": {
            "slot": _to_integers(pictures.column("slot")),
            "host": host_names.take(pa.array(_to_integers(pictures.column("host")))),
            "used_part": pictures.column("part"),
        },
        "tenants": {
            "tenant": names[: len(recorder.tenants)],
            **{
                f"vms_{name}": recorder.tenants.rows[:, place]
                for place, name in enumerate(("asked", "placed", "completed", "lost", "given_up"))
            },
            "waited_vm_seconds": recorder.waited_s,
        },
    }
    if recorder.moving is not None:
        tables["moves"] = recorder.moving.tables(names, host_names)
    for name, columns in tables.items():
        _write_table(folder / name, columns, as_csv=as_csv)


def _to_integers(column: Any) -> Any:
    return column.astype(np.int64)


def _write_table(path: Path, columns: Mapping[str, Any], *, as_csv: bool) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.csv as pa_csv  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if as_csv:
        pa_csv.write_csv(table, path.with_suffix(".csv"))
    else:
        pq.write_table(table, path.with_suffix(".parquet"), compression="zstd")
