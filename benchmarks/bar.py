"""Print policies over traces, and where the default misses its bar.

    python -m benchmarks.bar [DIR] [--only azure,google] [--policies fuga,…] [--parts 12] [--jobs 1]

Traces that need no files, a new one for each part:

azure     VMs drawn from the sample of Azure's trace (two days, 20 tenants) on 63 of Google's
          machines, too few for the second day
google    a workload of the published shape of Google's (two days, 50 tenants) on 60 machines

With DIR, a folder as `benchmarks.real_traces` has it, also the traces there. `held-out` are other
parts of Azure's trace than the sample: each part is another sixteenth of the batches, the first two
days, on the same 63 machines. `huawei` and `gpu` are as in that benchmark; each part draws as many
rows as the trace has, with replacement.

The first table has means over the parts with 95 % intervals. The second compares each policy with
a reference, part by part: differences in points, and ratios of waits, with 95 % intervals of their
means. A line below says where the default, `fuga`, misses its bar in the mean.

- *by size*: each VM counts by its dominant share of all hosts; waits are of all VMs, also of those
  that were never placed. The mean wait is of VMs placed: who places more of those that waited
  long has a longer one.
- *whole hosts*: VMs as large as the largest host, of those requested.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.drawn_trace import SAMPLE, write_drawn
from benchmarks.kit import parser
from benchmarks.placement.rounds import progress
from benchmarks.real_traces import TRACES, tasks_since
from simulation import RunSpec, TraceSpec, simulate
from simulation.metrics.confidence import half_width

DEFAULT: Final = "fuga"
BEST_FIT: Final = "best_fit_drfh:patience=0"
FIRST_FIT: Final = "first_fit_drfh:patience=0"
POLICIES: Final = (DEFAULT, BEST_FIT, FIRST_FIT)


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one run; None: not known."""

    placed: float | None  #: fraction of the VMs requested
    placed_by_size: float | None
    wait_s: float | None  #: mean, of VMs placed
    waiting_by_size_s: float | None
    unfair: float | None  #: distance from fair shares
    whole_hosts: float | None  #: fraction of the VMs as large as the largest host that were placed


class Measure(NamedTuple):
    """How a measure is shown, and compared with the reference's."""

    field: str
    head: str
    form: str
    scale: float = 1
    is_ratio: bool = False


MEASURES: Final = (
    Measure("placed", "placed", "{:.2f}", 100),
    Measure("placed_by_size", "by size", "{:.2f}", 100),
    Measure("wait_s", "mean wait", "{:,.0f}", 1, True),
    Measure("waiting_by_size_s", "wait by size", "{:,.0f}", 1, True),
    Measure("unfair", "off fair", "{:.2f}", 100),
    Measure("whole_hosts", "whole hosts", "{:.2f}", 100),
)
_WIDTH: Final = 17


class Bound(NamedTuple):
    """A limit on the default against a reference: a difference in points, or a ratio."""

    reference: str
    field: str
    limit: float
    is_minimum: bool = False


_GENERAL: Final = (
    Bound(BEST_FIT, "placed", -0.5, is_minimum=True),
    Bound(BEST_FIT, "unfair", 0.1),
    Bound(BEST_FIT, "waiting_by_size_s", 1.05),
    Bound(BEST_FIT, "wait_s", 1.15),
)
BARS: Final[Mapping[str, Sequence[Bound]]] = MappingProxyType(
    {
        "azure": _GENERAL,
        "google": _GENERAL,
        "held-out": _GENERAL,
        "gpu": (
            Bound(BEST_FIT, "placed", -0.5, is_minimum=True),
            Bound(BEST_FIT, "unfair", 0.0),
            Bound(BEST_FIT, "waiting_by_size_s", 1.05),
            Bound(BEST_FIT, "wait_s", 0.2),
        ),
        "huawei": (Bound(FIRST_FIT, "wait_s", 1.1), Bound(FIRST_FIT, "whole_hosts", 0.0, True)),
    }
)
_MACHINES: Final = str(SAMPLE.parent / "google_2011_machines_sample.csv")
_SAMPLE_VMS, _SAMPLE_DAYS = 11_118, 2.0
_HELD_OUT: Final = "azure_v1_requests/requests_d24_d29.parquet"
#: The sample has the batches whose number leaves 5 when it is divided by 16.
_PARTS, _OF_SAMPLE = 16, 5


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__, only=([], "traces, with commas between"), policies=[*POLICIES], parts=12, jobs=1
    )
    arguments.add_argument("data", type=Path, metavar="DIR", nargs="?")
    given = arguments.parse_args(argv)
    traces = given.only or [*_traces_there(given.data)]
    say = progress()
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for trace in traces:
            found: defaultdict[str, dict[int, Measures]] = defaultdict(dict)
            runs = {
                pool.submit(run, given.data, trace, policy, part): (policy, part)
                for policy in given.policies
                for part in range(given.parts)
            }
            for number, done in enumerate(as_completed(runs), 1):
                policy, part = runs[done]
                found[policy][part] = done.result()
                say(f"{trace}: {number} of {len(runs)} runs: {policy} {part}")
            by_policy = {
                policy: [found[policy][part] for part in range(given.parts)]
                for policy in given.policies
            }
            print("\n".join(tables(trace, by_policy)), flush=True)


def tables(trace: str, found: Mapping[str, Sequence[Measures]]) -> Iterator[str]:
    """Yield the lines of one trace: means, paired differences, and misses of the bar."""
    width = max(map(len, found)) + 5
    heads = "".join(f"{each.head:>{_WIDTH}}" for each in MEASURES)
    parts = len(next(iter(found.values())))
    yield f"{f'{trace}, {parts} parts':<{width}}{heads}"
    for policy, runs in found.items():
        cells = (_interval(_known(runs, each), each.form) for each in MEASURES)
        yield f"{policy:<{width}}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)
    for reference in (BEST_FIT, FIRST_FIT):
        if reference not in found:
            continue
        yield f"against {reference}"
        for policy, runs in found.items():
            if policy != reference:
                cells = (
                    _interval(paired(runs, found[reference], each), "{:+.2f}")
                    if not each.is_ratio
                    else _interval(paired(runs, found[reference], each), "× {:.2f}")
                    for each in MEASURES
                )
                yield f"  {policy:<{width - 2}}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)
    yield from misses(trace, found)
    yield ""


def paired(
    runs: Sequence[Measures], reference: Sequence[Measures], measure: Measure
) -> list[float]:
    """Return the difference in points, or the ratio, of each part in which both are known."""
    pairs = [
        (own, other)
        for own, other in zip(
            (getattr(each, measure.field) for each in runs),
            (getattr(each, measure.field) for each in reference),
            strict=True,
        )
        if own is not None and other is not None
    ]
    if measure.is_ratio:
        return [own / other for own, other in pairs if other > 0]
    return [measure.scale * (own - other) for own, other in pairs]


def misses(trace: str, found: Mapping[str, Sequence[Measures]]) -> Iterator[str]:
    """Yield a line for each bound that the default misses in the mean."""
    measures = {each.field: each for each in MEASURES}
    for bound in BARS[trace]:
        if DEFAULT not in found or bound.reference not in found:
            continue
        measure = measures[bound.field]
        values = paired(found[DEFAULT], found[bound.reference], measure)
        mean = float(np.mean(values)) if values else 0.0
        if values and (mean < bound.limit if bound.is_minimum else mean > bound.limit):
            sign, form = ("×", "× {:.2f}") if measure.is_ratio else ("", "{:+.2f}")
            side = "at least" if bound.is_minimum else "at most"
            yield (
                f"misses: {measure.head} {_interval(values, form)} against {bound.reference}, "
                f"{side} {sign}{' ' if sign else ''}{bound.limit:g}"
            )


def _known(runs: Sequence[Measures], measure: Measure) -> list[float]:
    values = (getattr(each, measure.field) for each in runs)
    return [measure.scale * each for each in values if each is not None]


def _interval(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    width = form.replace("+", "").replace("× ", "").format(half_width(values))
    return f"{form.format(float(np.mean(values)))} ± {width}"


def _traces_there(data: Path | None) -> Iterator[str]:
    yield from ("azure", "google")
    if data is not None:
        files = {"held-out": _HELD_OUT} | {name: TRACES[name].path for name in ("huawei", "gpu")}
        yield from (name for name, path in files.items() if (data / path).is_file())


def run(data: Path | None, trace: str, policy: str, part: int) -> Measures:
    """Simulate one part of a trace under one policy."""
    name, *settings = policy.split(":")
    parameters = {
        key: json.loads(value) for key, value in (each.split("=", 1) for each in settings)
    }
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec(
            name="run", policy=name, parameters=parameters, seed=part,
            **_inputs(data, trace, part, Path(folder)),
        )  # fmt: skip
        summary = simulate(spec, Path(folder) / "run")
    whole = summary["whole_host_vms"]
    return Measures(
        placed=summary["placed_part"],
        placed_by_size=summary["placed_by_size"],
        wait_s=summary["wait_s"]["mean"],
        waiting_by_size_s=summary["waiting_by_size_s"],
        unfair=summary["fair_distance"],
        whole_hosts=whole["placed"] / whole["requested"] if whole["requested"] else None,
    )


def _inputs(data: Path | None, trace: str, part: int, folder: Path) -> dict[str, Any]:
    """Return the fields of a run's spec that depend on the trace."""
    if trace == "google":
        return {
            "trace": TraceSpec(path="google:6000:2d:50t"),
            "hosts": "google:60",
            "slot_length_s": 300.0,
        }
    if trace == "azure":
        drawn = folder / "drawn.csv"
        write_drawn(drawn, _SAMPLE_VMS, _SAMPLE_DAYS, part)
        return {
            "trace": TraceSpec(path=str(drawn), tenants=20),
            "hosts": _MACHINES,
            "slot_length_s": 300.0,
        }
    if data is None:
        raise SystemExit(f"{trace}: needs DIR")
    if trace == "held-out":
        return {
            "trace": TraceSpec(path=str(_held_out(data, part, folder)), tenants=20),
            "hosts": _MACHINES,
            "slot_length_s": 300.0,
            "until_s": 2_100_000 + _SAMPLE_DAYS * 86_400,
        }
    real = TRACES[trace]
    path = data / real.path
    if real.since_s:
        path = tasks_since(real.since_s, path, folder / "trace.csv")
    return {
        "trace": TraceSpec(path=str(_redrawn(path, part, folder))),
        "hosts": ",".join(real.hosts),
        "slot_length_s": real.slot_length_s,
    }


def _held_out(data: Path, part: int, folder: Path) -> Path:
    """Write a sixteenth of the batches of Azure's trace, never the sample's: there are 15."""
    chosen = [each for each in range(_PARTS) if each != _OF_SAMPLE][part]
    rows = pyarrow.parquet.read_table(data / _HELD_OUT)
    left_over = np.asarray(rows["batch_id"]) % _PARTS
    pyarrow.parquet.write_table(rows.filter(left_over == chosen), folder / "held-out.parquet")
    return folder / "held-out.parquet"


def _redrawn(path: Path, part: int, folder: Path) -> Path:
    """Write as many rows of a trace as it has, drawn with replacement, in their order."""
    is_csv = path.suffix == ".csv"
    rows = pyarrow.csv.read_csv(path) if is_csv else pyarrow.parquet.read_table(path)
    drawn = np.random.default_rng([part, len(rows)]).integers(len(rows), size=len(rows))
    rows = rows.take(np.sort(drawn))
    if is_csv:
        names = [f"{name}-{number}" for number, name in enumerate(rows["name"].to_pylist())]
        rows = rows.set_column(rows.schema.get_field_index("name"), "name", pa.array(names))
        pyarrow.csv.write_csv(rows, folder / "drawn.csv")
        return folder / "drawn.csv"
    pyarrow.parquet.write_table(rows, folder / "drawn.parquet")
    return folder / "drawn.parquet"


if __name__ == "__main__":
    main()
