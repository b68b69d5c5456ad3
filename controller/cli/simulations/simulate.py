"""`fuga simulate`: runs a trace through the policies that rounds use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.extras import require_simulation_packages
from controller.session.config_option import ConfigOption
from controller.session.session import CommonOptions, OutputOption
from controller.terminal.errors import BadInputError
from controller.terminal.output import OutputFormat

# `study_run` brings numpy and is imported where it is used: `--help` is there at once

_WHAT, _HOW, _MOVES, _OUT = "Input", "Decisions", "Moves", "Output"

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TRACE [NAME=A,B]...",
        help="Trace file (formats: docs/simulate.md), then values for --sweep."
        " No trace with --from-registry",
    ),
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="INVENTORY",
        help="Hosts: CSV or JSON file, or 20:64c:256g (20 hosts, 64 cores, 256 GiB)",
        rich_help_panel=_WHAT,
    ),
]
AddHostsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Hosts to add: file or 20:64c:256g:label=ssd; repeatable",
        metavar="HOSTS",
        rich_help_panel=_WHAT,
    ),
]
WithoutHostsOption = Annotated[
    str | None,
    typer.Option(
        help="Hosts to remove: names or patterns such as rack3-*",
        metavar="NAME,...",
        rich_help_panel=_WHAT,
    ),
]
CompareUnchangedOption = Annotated[
    bool,
    typer.Option(
        "--compare-unchanged",
        help="Also run without --add-hosts, --without-hosts and moves",
        rich_help_panel=_WHAT,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="Format of the trace (default: detected)", rich_help_panel=_WHAT),
]
TypesOption = Annotated[
    str | None, typer.Option(help="CSV of VM types: name and resources", rich_help_panel=_WHAT)
]
WeightsOption = Annotated[
    str | None, typer.Option(help="CSV of tenant and weight (default: 1)", rich_help_panel=_WHAT)
]
TreeOption = Annotated[
    str | None,
    typer.Option(
        help="CSV of groups of tenants: name, parent, weight, at_s (start)", rich_help_panel=_WHAT
    ),
]
QuotasOption = Annotated[
    str | None,
    typer.Option(help="CSV of limits: owner, resource, limit, at_s (start)", rich_help_panel=_WHAT),
]
TenantsOption = Annotated[
    int,
    typer.Option(help="Merge tenants into this number; 0: keep all", min=0, rich_help_panel=_WHAT),
]
SampleOption = Annotated[
    float,
    typer.Option(
        help="Fraction of tenants to simulate, drawn for each seed",
        min=0.0001,
        max=1.0,
        rich_help_panel=_WHAT,
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End: seconds of the trace; with --from-registry as --since",
        rich_help_panel=_WHAT,
    ),
]
FromRegistryOption = Annotated[
    bool,
    typer.Option(
        "--from-registry",
        help="Use the live system's hosts and requests instead of TRACE",
        rich_help_panel=_WHAT,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Start of --from-registry: 12h ago or 2026-11-10T00:00Z (default: 7d)",
        rich_help_panel=_WHAT,
    ),
]
SaveTraceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Save the --from-registry data to DIR, simulate nothing",
        rich_help_panel=_WHAT,
    ),
]
AnonymousOption = Annotated[
    bool,
    typer.Option(
        "--anonymous",
        help="Replace names in --from-registry data by numbers",
        rich_help_panel=_WHAT,
    ),
]
DrainOption = Annotated[
    bool, typer.Option("--drain", help="Continue until all VMs have ended", rich_help_panel=_WHAT)
]
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME,...",
        help="Policies",
        show_default="fuga, best_fit_drfh, first_fit",
        rich_help_panel=_HOW,
    ),
]
ZonePolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--zone-policy",
        metavar="ZONE=POLICY",
        help="Policy of a zone, or a JSON file as FUGA_ZONE_POLICIES; none ignores the"
        " register center's zones; repeatable",
        rich_help_panel=_HOW,
    ),
]
SlotOption = Annotated[
    float | None,
    typer.Option(
        "--slot",
        metavar="SECONDS",
        help="Slot length (default: 60, or the live system's)",
        min=0.001,
        max=1e9,
        rich_help_panel=_HOW,
    ),
]
BeganAtOption = Annotated[
    str | None,
    typer.Option(
        "--began-at",
        metavar="TIME",
        help="Date of the trace's time 0, such as 2026-11-10T08:00 (local time) or"
        " 2026-11-10T00:00Z; sets the seeds of rounds",
        rich_help_panel=_HOW,
    ),
]
SeedsOption = Annotated[
    int, typer.Option(help="Number of runs of each policy", min=1, rich_help_panel=_HOW)
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=VALUE",
        help="Policy parameter (see fuga solve --list); repeatable",
        rich_help_panel=_HOW,
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A,B,...",
        help="Run all combinations of values, such as slot=10,60; repeatable",
        rich_help_panel=_HOW,
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        help="Maximum combinations per round; 0: all (default: 2000000, or live)",
        min=0,
        rich_help_panel=_HOW,
    ),
]
FairnessMemoryOption = Annotated[
    int | None,
    typer.Option(
        "--fairness-memory",
        metavar="SECONDS",
        help="Half-life of what tenants held before (default: 0, or live)",
        min=0,
        rich_help_panel=_HOW,
    ),
]
GiveUpOption = Annotated[
    float | None,
    typer.Option(
        "--give-up",
        metavar="SECONDS",
        help="Tenants cancel VMs that wait longer",
        min=0.0,
        rich_help_panel=_HOW,
    ),
]
BalanceOption = Annotated[
    str | None,
    typer.Option(
        "--balance",
        metavar="NAME=VALUE,...",
        help="Balance hosts at an interval: every_s=3600, hours, most_gib, most_moves,"
        " price_per_gib, least_gain",
        rich_help_panel=_MOVES,
    ),
]
SpareOption = Annotated[
    str | None,
    typer.Option(
        "--spare",
        metavar="host|zone|LABEL",
        help="Keep spare for any one host, zone, or value of a label",
        rich_help_panel=_MOVES,
    ),
]
RollOption = Annotated[
    str | None,
    typer.Option(
        "--roll",
        metavar="NAME=VALUE,...",
        help="Roll through hosts: hosts=rack3-*, at_once=1, takes_s=600, at_s, wait_s",
        rich_help_panel=_MOVES,
    ),
]
RoomOption = Annotated[
    str | None,
    typer.Option(
        "--room",
        metavar="NAME=VALUE,...",
        help="Make room by moves for starving requests, hold no hosts back: patience=12, most_gib",
        rich_help_panel=_MOVES,
    ),
]
MovePriceOption = Annotated[
    str | None,
    typer.Option(
        "--move-price",
        metavar="NAME=VALUE,...",
        help="What a move takes: gib_per_s=1, least_s=5, rest_s=3600, per_host=2, at_once=20",
        rich_help_panel=_MOVES,
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", help="Runs at a time; 0: one per core", min=0)
]
CeleryOption = Annotated[
    bool,
    typer.Option(
        "--celery",
        help="Run on all `fuga simulation-worker`s of FUGA_BROKER_URL; share DIR and inputs",
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Output folder", rich_help_panel=_OUT)
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the simulation in DIR", rich_help_panel=_OUT)
]
CsvOption = Annotated[
    bool,
    typer.Option("--csv", help="Write time series as CSV instead of Parquet", rich_help_panel=_OUT),
]
IdealOption = Annotated[
    int,
    typer.Option(
        help="Compare with fair shares and LP bound every N slots", min=1, rich_help_panel=_OUT
    ),
]


def simulate_command(
    ctx: typer.Context,
    *,
    words: WordsArgument = None,
    hosts: HostsOption = None,
    add_hosts: AddHostsOption = None,
    without_hosts: WithoutHostsOption = None,
    compare_unchanged: CompareUnchangedOption = False,
    trace_format: FormatOption = None,
    types: TypesOption = None,
    weights: WeightsOption = None,
    tree: TreeOption = None,
    quotas: QuotasOption = None,
    tenants: TenantsOption = 0,
    sample: SampleOption = 1.0,
    until: UntilOption = None,
    drain: DrainOption = False,
    from_registry: FromRegistryOption = False,
    since: SinceOption = None,
    save_trace: SaveTraceOption = None,
    anonymous: AnonymousOption = False,
    config: ConfigOption = None,
    policy: PolicyOption = "fuga,best_fit_drfh,first_fit",
    zone_policy: ZonePolicyOption = None,
    slot: SlotOption = None,
    began_at: BeganAtOption = None,
    seeds: SeedsOption = 1,
    parameter: ParameterOption = None,
    sweep: SweepOption = None,
    budget: BudgetOption = None,
    fairness_memory: FairnessMemoryOption = None,
    give_up: GiveUpOption = None,
    balance: BalanceOption = None,
    spare: SpareOption = None,
    roll: RollOption = None,
    room: RoomOption = None,
    move_price: MovePriceOption = None,
    jobs: JobsOption = 0,
    celery: CeleryOption = False,
    out: OutOption = Path("simulation-results"),
    resume: ResumeOption = False,
    as_csv: CsvOption = False,
    ideal_every: IdealOption = 12,
    output: OutputOption = None,
) -> None:
    """Simulate policies on a trace of requests, slot by slot.

    With --from-registry, simulate the live system's requests on its hosts.

    Policies and rounds are those of the control centre; only clock, hosts and
    VMs are simulated. DIR gets time series, summary.json and report.html. After
    Ctrl-C, --resume continues.
    """
    if save_trace is None:
        require_simulation_packages("fuga simulate")
    from controller.cli.simulations import study_run  # noqa: PLC0415

    before = ctx.obj if isinstance(ctx.obj, CommonOptions) else CommonOptions()
    form = output or before.output or OutputFormat.TABLE
    options = study_run.SimulateOptions(
        hosts=hosts,
        add_hosts=tuple(add_hosts or ()),
        without_hosts=tuple(filter(None, (without_hosts or "").split(","))),
        compare_unchanged=compare_unchanged,
        trace_format=trace_format,
        types=types,
        weights=weights,
        tree=tree,
        quotas=quotas,
        zone_policies=tuple(zone_policy or ()),
        tenants=tenants,
        sample=sample,
        drain=drain,
        policies=tuple(filter(None, policy.split(","))),
        slot_length_s=slot,
        seeds=seeds,
        parameters=tuple(parameter or ()),
        sweep=tuple(sweep or ()),
        budget=budget,
        fairness_memory_s=fairness_memory,
        give_up_s=give_up,
        balance=balance,
        spare=spare,
        roll=roll,
        room=room,
        move_price=move_price,
        ideal_every=ideal_every,
    )
    if from_registry:
        from controller.cli.simulations import recording  # noqa: PLC0415

        if began_at is not None:
            raise BadInputError("--began-at needs a TRACE; with --from-registry use --since")
        window = recording.RecordingWindow(since=since, until=until, anonymous=anonymous)
        if save_trace is not None:
            recording.save_recording(window, save_trace)
            return
        options = recording.record_and_build_options(
            replace(options, sweep=(*options.sweep, *(words or ()))), window, out=out, resume=resume
        )
    elif since is not None or save_trace is not None or anonymous:
        raise BadInputError("--since, --save-trace and --anonymous need --from-registry")
    else:
        trace, *more = words or [""]
        if not trace or "=" in trace:
            raise BadInputError("give a trace: fuga simulate TRACE --hosts 20:64c:256g")
        if hosts is None:
            raise BadInputError("give the hosts: --hosts FILE or --hosts 20:64c:256g")
        options = replace(
            options,
            trace=trace,
            sweep=(*options.sweep, *more),
            began_at_s=study_run.parse_calendar_time(began_at, "--began-at"),
            until_s=study_run.parse_seconds(until, "--until"),
        )
    study_run.run_study(
        options, out=out, jobs=jobs, celery=celery, resume=resume, as_csv=as_csv, form=form
    )
