"""The work of `fuga simulate`: plans and runs a study and prints its results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.simulations.progress import show_progress
from controller.terminal.columns import Column
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import (
    OutputFormat,
    echo,
    number_text,
    print_json,
    print_records_as,
    print_table,
)
from controller.terminal.times import parse_time
from simulation import (
    AnyStudy,
    FleetStudy,
    JobTakenError,
    MoveOptions,
    RunFailedError,
    RunSpec,
    SharedFolderError,
    SimulationError,
    Study,
    TraceSpec,
    plan_study,
    read_zone_policies,
    stop_on_interrupt,
    write_summary,
)
from simulation.experiments.jobs import FLEET
from simulation.experiments.specs import open_inputs
from simulation.report import write_report

if TYPE_CHECKING:
    from controller.simulations.queue import SimulationQueue


def print_study(comparison: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print every run, and then, if any has several seeds, variants side by side."""
    print_table(_OF_RUNS, summaries, empty="nothing was simulated")
    moving = [each for each in summaries if each["moves"] is not None]
    if moving:
        echo()
        echo("what moves took, and means over the slots")
        print_table(_OF_MOVES, moving, empty="nothing was simulated")
        for each in moving:
            _print_roll(each)
    if any(len(row["seeds"]) > 1 for row in comparison["variants"]):
        echo()
        echo("means over seeds ± standard deviation")
        print_table(_OF_VARIANTS, comparison["variants"], empty="nothing was simulated")


def _percent_text(value: float | None) -> str:
    return "-" if value is None else f"{number_text(100 * value, 2)} %"


def _seconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _number_text(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _print_roll(run: Mapping[str, Any]) -> None:
    """Print the result of a simulated roll, with the hosts that were left out."""
    roll = run["moves"]["roll"]
    if roll is None:
        return
    took = "not at its end" if roll["took_s"] is None else f"took {roll['took_s']:,.0f} s"
    echo(f"roll of {run['name']}: {roll['rolled']} hosts, {took}")
    for each in roll["left_out"]:
        why = ", ".join(each["why"][:3]) + (", …" if len(each["why"]) > 3 else "")
        echo(f"  {each['host']} left out: {why}")


def _spare_text(row: Mapping[str, Any]) -> str:
    spare = row["moves"]["spare"]
    return "-" if spare is None else f"{spare['asked'] - spare['not_held']} of {spare['asked']}"


def _first_resource_text(row: Mapping[str, Any]) -> str:
    used = next(iter(row["used"].values()), {"mean": None})
    return _percent_text(used["mean"])


_OF_RUNS = (
    Column("run", lambda row: row["name"] + ("" if row["finished"] else " (stopped)")),
    Column("VMs requested", lambda row: f"{row['vms']['asked']:,}", right=True),
    Column("placed", lambda row: _percent_text(row["placed_part"]), right=True),
    Column("by size", lambda row: _percent_text(row["placed_by_size"]), right=True),
    Column("mean wait", lambda row: _seconds_text(row["wait_s"]["mean"]), right=True),
    Column("wait by size", lambda row: _seconds_text(row["waiting_by_size_s"]), right=True),
    Column("95 % within", lambda row: _seconds_text(row["wait_s"]["p95"]), right=True),
    Column("waiting", lambda row: f"{row['vms']['waiting']:,}", right=True),
    Column("in use", _first_resource_text, right=True),
    Column("distance from fair", lambda row: _percent_text(row["fair_distance"]), right=True),
    Column("of bound", lambda row: _percent_text(row["bound_part"]), right=True),
    Column("took", lambda row: _seconds_text(row["timing"]["processor_seconds"]), right=True),
    Column(
        "events/s", lambda row: f"{row['timing']['events_per_processor_second']:,.0f}", right=True
    ),
)

_OF_MOVES = (
    Column("run", lambda row: row["name"]),
    Column("moves", lambda row: f"{row['moves']['moved']:,}", right=True),
    Column("GiB", lambda row: _number_text(row["moves"]["moved_gib"], 0), right=True),
    Column("load off", lambda row: _percent_text(row["moves"]["load_deviation"]), right=True),
    Column("skewness", lambda row: _number_text(row["moves"]["mean_skewness"], 3), right=True),
    Column("potential", lambda row: _number_text(row["moves"]["potential"]), right=True),
    Column(
        "distance from fair",
        lambda row: _percent_text(row["moves"]["fairness_distance"]),
        right=True,
    ),
    Column("hosts", lambda row: _number_text(row["moves"]["hosts_in_use"], 1), right=True),
    Column("held idle", lambda row: _percent_text(row["moves"]["held_idle_part"]), right=True),
    Column("spare held", _spare_text, right=True),
)


def _mean_cell(
    path: str, shown: Callable[[float | None], str]
) -> Callable[[Mapping[str, Any]], str]:
    """Return a cell function for a measure's mean over seeds, with its standard deviation."""

    def cell(row: Mapping[str, Any]) -> str:
        value = row["measures"][path]
        spread = "" if value["sd"] is None else f" ± {shown(value['sd'])}"
        return f"{shown(value['mean'])}{spread}"

    return cell


_OF_VARIANTS = (
    Column("variant", lambda row: row["variant"]),
    Column("seeds", lambda row: len(row["seeds"]), right=True),
    Column("placed", _mean_cell("placed_part", _percent_text), right=True),
    Column("by size", _mean_cell("placed_by_size", _percent_text), right=True),
    Column("mean wait", _mean_cell("wait_s.mean", _seconds_text), right=True),
    Column("wait by size", _mean_cell("waiting_by_size_s", _seconds_text), right=True),
    Column("95 % within", _mean_cell("wait_s.p95", _seconds_text), right=True),
    Column("in use", _mean_cell("used.first.mean", _percent_text), right=True),
    Column("distance from fair", _mean_cell("fair_distance", _percent_text), right=True),
    Column("of bound", _mean_cell("bound_part", _percent_text), right=True),
)


#: As control centres have them, unless their settings say otherwise.
_SLOT_LENGTH_S, _BUDGET_UNITS = 60.0, 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of `fuga simulate`, as typed."""

    trace: str = ""
    hosts: str | None
    add_hosts: Sequence[str]
    without_hosts: Sequence[str]
    compare_unchanged: bool
    trace_format: str | None
    types: str | None
    weights: str | None
    tree: str | None
    quotas: str | None
    zone_policies: Sequence[str]
    tenants: int
    sample: float
    began_at_s: float = 0.0
    until_s: float | None = None
    drain: bool
    policies: Sequence[str]
    slot_length_s: float | None  #: None: 60 s, or that of the live system
    seeds: int
    parameters: Sequence[str]
    sweep: Sequence[str]
    budget: int | None  #: combinations of a round; 0: all; None: as rounds by default
    fairness_memory_s: int | None = None  #: None: 0, or that of the live system
    give_up_s: float | None
    balance: str | None = None
    spare: str | None = None
    roll: str | None = None
    room: str | None = None
    move_price: str | None = None
    ideal_every: int

    def specs(self) -> list[RunSpec]:
        """Return the specification of each run of the study."""
        assert self.hosts is not None  # noqa: S101 - checked, or from the register center
        zones = read_zone_policies(self.zone_policies)
        base = RunSpec(
            name="",
            trace=TraceSpec(
                path=self.trace,
                format=self.trace_format,
                types=self.types,
                tenants=self.tenants,
                sample=self.sample,
            ),
            hosts=self.hosts,
            add_hosts=tuple(self.add_hosts),
            without_hosts=tuple(self.without_hosts),
            weights=self.weights,
            tree=self.tree,
            quotas=self.quotas,
            zone_policies={zone: its.policy for zone, its in zones.items()},
            zone_parameters={
                zone: its.parameters for zone, its in zones.items() if its.parameters is not None
            },
            began_at_s=self.began_at_s,
            slot_length_s=_SLOT_LENGTH_S if self.slot_length_s is None else self.slot_length_s,
            budget_units=(_BUDGET_UNITS if self.budget is None else self.budget) or None,
            fairness_memory_s=self.fairness_memory_s or 0,
            wait_at_most_s=self.give_up_s,
            moving=MoveOptions.from_options(
                balance=self.balance,
                spare=self.spare,
                roll=self.roll,
                room=self.room,
                price=self.move_price,
            ),
            until_s=self.until_s,
            drain=self.drain,
            ideal_every=self.ideal_every,
        )
        return plan_study(
            base,
            policies=self.policies,
            seeds=self.seeds,
            parameters=self.parameters,
            sweep=self.sweep,
            compare_unchanged=self.compare_unchanged,
        )


def parse_seconds(text: str | None, option: str) -> float | None:
    """Parse the seconds of a trace that an option gives; None if it is not given."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInputError(f"{option}: found {text!r}, wanted seconds of the trace")
    return seconds


def parse_calendar_time(text: str | None, option: str) -> float:
    """Parse a calendar time that an option gives into seconds since 1970; 0 if not given."""
    if text is None:
        return 0.0
    if (at := parse_time(text, option)) is None:
        wanted = "a time such as 2026-11-10T08:00 (local time) or 2026-11-10T00:00Z"
        raise BadInputError(f"{option}: found {text!r}, wanted {wanted}")
    return at.timestamp()


def run_study(
    options: SimulateOptions,
    *,
    out: Path,
    jobs: int,
    celery: bool,
    resume: bool,
    as_csv: bool,
    form: OutputFormat,
) -> None:
    """Run a study of `fuga simulate` and print its results.

    Errors end the command with their exit status.
    """
    if celery and jobs:
        raise BadInputError(
            "--jobs cannot be used with --celery: each `fuga simulation-worker` has its own"
        )
    if (out / FLEET).exists() and not celery:
        raise BadInputError(
            f"{out / FLEET}: a fleet may run this study; continue with --celery, or remove that"
            " folder if no worker runs it any more"
        )
    if (out / "runs").exists() and not resume:
        raise BadInputError(f"{out} holds a simulation: give another --out, or --resume")
    try:
        specs = options.specs()
        open_inputs(specs[0])  # reports bad files before processes start
        out.mkdir(parents=True, exist_ok=True)
    except SimulationError as error:
        raise BadInputError(str(error)) from error
    except OSError as error:
        wanted = "give a writable folder"
        raise BadInputError(f"--out {out}: {error.strerror}; {wanted}") from error
    queue = _open_fleet_queue(out, len(specs)) if celery else None
    with show_progress([spec.name for spec in specs], fleet=celery) as shown:
        if queue is not None:
            study: AnyStudy = FleetStudy(specs, out, queue, as_csv=as_csv, warn=shown.warn)
        else:
            jobs = min(jobs or os.cpu_count() or 1, len(specs))
            study = Study(specs, out, jobs=jobs, resume=resume, as_csv=as_csv)
        undo = stop_on_interrupt(study)
        try:
            summaries = study.run(shown.update)
        except RunFailedError as error:
            raise (BadInputError if error.bad_input else CliError)(str(error)) from error
        except (JobTakenError, SharedFolderError) as error:
            raise CliError(str(error)) from error
        finally:
            undo()
    document = write_summary(out, summaries, ["fuga", *sys.argv[1:]])
    report = write_report(out, document)
    _print_results(document, summaries, report, form)
    if len(summaries) < len(specs) or not document["finished"]:
        raise CliError(f"stopped; continue with the same options and `--resume --out {out}`")


def _open_fleet_queue(out: Path, runs: int) -> SimulationQueue:
    """Return the queue of the simulation workers; check that its broker answers."""
    from controller.session.settings import load_settings  # noqa: PLC0415 - slow, and seldom needed
    from controller.simulations.queue import NoFleetError, SimulationQueue  # noqa: PLC0415

    try:
        queue = SimulationQueue(load_settings())
        queue.check()
    except NoFleetError as error:
        raise CliError(str(error)) from error
    echo(
        f"{runs} runs wait for a `fuga simulation-worker` whose folder holds {out.resolve()}",
        err=True,
    )
    return queue


def _print_results(
    document: Mapping[str, Any],
    summaries: Sequence[Mapping[str, Any]],
    report: Path,
    form: OutputFormat,
) -> None:
    """Print the results of a study, the bad rows of its trace, and where its report is."""
    if form is not OutputFormat.TABLE:
        print_records_as(form)
        print_json(document)
        return
    print_study(document["comparison"], summaries)
    bad = [each["bad_rows"] for each in summaries if each["bad_rows"]["count"]]
    if bad:
        echo(f"{bad[0]['count']} bad rows were skipped, the first of them:", err=True)
        for line in bad[0]["first"][:5]:
            echo(f"  {line}", err=True)
    echo()
    echo(f"report: {report}; summary.json, plots and time series are in the same folder")
