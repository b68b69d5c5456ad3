"""`fuga simulate`: a trace through the policies that rounds use, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from controller.calling.config import ConfigOption
from controller.calling.session import Common, OutputOption
from controller.cli.extras import need_simulation
from controller.terminal.errors import BadInputError
from controller.terminal.output import OutputFormat

# `simulating` brings numpy and is imported where it is used: `--help` is there at once

_WHAT, _HOW, _OUT = "What is simulated", "How it is decided", "What is written"

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TRACE [NAME=A,B]...",
        help="A trace (docs/simulate.md: CSV, Parquet, public formats), then more of --sweep."
        " None with --from-registry.",
    ),
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="INVENTORY",
        help="The hosts: a CSV or JSON file, or 20:64c:256g (20 of 64 cores and 256 GiB).",
        rich_help_panel=_WHAT,
    ),
]
AddHostsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What if there were these as well: a file, or 20:64c:256g:label=ssd; repeatable.",
        metavar="HOSTS",
        rich_help_panel=_WHAT,
    ),
]
WithoutHostsOption = Annotated[
    str | None,
    typer.Option(
        help="What if these were not there: names, or patterns as rack3-*.",
        metavar="NAME,...",
        rich_help_panel=_WHAT,
    ),
]
BesideUnchangedOption = Annotated[
    bool,
    typer.Option(
        "--beside-unchanged",
        help="Run everything on the hosts without --add-hosts and --without-hosts, too.",
        rich_help_panel=_WHAT,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="Of the trace; else by its columns.", rich_help_panel=_WHAT),
]
TypesOption = Annotated[
    str | None,
    typer.Option(help="CSV of VM types: name and resources.", rich_help_panel=_WHAT),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(help="CSV of tenant and weight; else 1.", rich_help_panel=_WHAT),
]
TreeOption = Annotated[
    str | None,
    typer.Option(
        help="CSV of name, parent, weight and at_s: groups of tenants, from when on.",
        rich_help_panel=_WHAT,
    ),
]
QuotasOption = Annotated[
    str | None,
    typer.Option(
        help="CSV of owner, resource, limit and at_s: the most that tenants and groups may hold.",
        rich_help_panel=_WHAT,
    ),
]
TenantsOption = Annotated[
    int,
    typer.Option(help="Fold tenants into so many; 0: as they are.", min=0, rich_help_panel=_WHAT),
]
SampleOption = Annotated[
    float,
    typer.Option(
        help="Part of the tenants that takes part, drawn anew for each seed.",
        min=0.0001,
        max=1.0,
        rich_help_panel=_WHAT,
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End at this time of the trace, seconds; of the register center as --since.",
        rich_help_panel=_WHAT,
    ),
]
FromRegistryOption = Annotated[
    bool,
    typer.Option(
        "--from-registry",
        help="Hosts, requests and VMs of the live system, instead of TRACE and --hosts.",
        rich_help_panel=_WHAT,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Of the register center: so long ago (7d, 12h), or 2026-11-10T00:00Z; 7d.",
        rich_help_panel=_WHAT,
    ),
]
SaveTraceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write what is read from the register center there, and simulate nothing.",
        rich_help_panel=_WHAT,
    ),
]
AnonymousOption = Annotated[
    bool,
    typer.Option(
        "--anonymous",
        help="Of the register center: numbers for names of tenants, groups and hosts.",
        rich_help_panel=_WHAT,
    ),
]
DrainOption = Annotated[
    bool,
    typer.Option("--drain", help="Go on until all VMs have ended.", rich_help_panel=_WHAT),
]
PolicyOption = Annotated[
    str,
    typer.Option("--policy", metavar="NAME,...", help="Who decides.", rich_help_panel=_HOW),
]
ZonePolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--zone-policy",
        metavar="ZONE=POLICY",
        help="Who decides on hosts labelled zone=ZONE; elsewhere --policy does. Or a JSON file as"
        " FUGA_ZONE_POLICIES has it; none: not as the register center has it.",
        rich_help_panel=_HOW,
    ),
]
SlotOption = Annotated[
    float | None,
    typer.Option(
        "--slot",
        metavar="SECONDS",
        help="Length of slots; 60, or as those of the register center.",
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
        help="When time 0 of the trace was, as 2026-11-10T00:00Z: rounds get the seeds that"
        " rounds had then.",
        rich_help_panel=_HOW,
    ),
]
SeedsOption = Annotated[
    int, typer.Option(help="Run each policy so many times.", min=1, rich_help_panel=_HOW)
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=VALUE",
        help="Of the policies that read it (fuga solve --list has all); repeatable.",
        rich_help_panel=_HOW,
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A,B,...",
        help="Run every combination of these values; slot=10,60 varies the slots.",
        rich_help_panel=_HOW,
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        help="Combinations a round evaluates at most; 0: all; 2000000, or as the register center.",
        min=0,
        rich_help_panel=_HOW,
    ),
]
GiveUpOption = Annotated[
    float | None,
    typer.Option(
        "--give-up",
        metavar="SECONDS",
        help="VMs that wait longer are given up by their tenants.",
        min=0.0,
        rich_help_panel=_HOW,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option("--jobs", "-j", help="Runs at a time; 0: one for each core.", min=0),
]
CeleryOption = Annotated[
    bool,
    typer.Option(
        "--celery",
        help="Runs go to every `fuga simulation-worker` on FUGA_BROKER_URL; DIR, working folder"
        " and inputs must be shared.",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Where to write.", rich_help_panel=_OUT),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on with what is in DIR.", rich_help_panel=_OUT),
]
CsvOption = Annotated[
    bool,
    typer.Option("--csv", help="Time series as CSV, not Parquet.", rich_help_panel=_OUT),
]
IdealOption = Annotated[
    int,
    typer.Option(
        help="Slots from one comparison with fair shares and the LP bound to the next.",
        min=1,
        rich_help_panel=_OUT,
    ),
]


def simulate_command(
    ctx: typer.Context,
    *,
    words: WordsArgument = None,
    hosts: HostsOption = None,
    add_hosts: AddHostsOption = None,
    without_hosts: WithoutHostsOption = None,
    beside_unchanged: BesideUnchangedOption = False,
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
    give_up: GiveUpOption = None,
    jobs: JobsOption = 0,
    celery: CeleryOption = False,
    out: OutOption = Path("simulation-results"),
    resume: ResumeOption = False,
    as_csv: CsvOption = False,
    ideal_every: IdealOption = 12,
    output: OutputOption = None,
) -> None:
    """Run a trace of requests through policies, slot by slot, on hosts that you name.

    Or, with --from-registry, what the live system was asked for, on its hosts.

    The decisions are those of the control centre: same policies, same rounds;
    only clock, hosts and VMs are simulated. DIR gets time series, summary.json and
    report.html. Ctrl-C keeps what there is; --resume goes on.
    """
    if save_trace is None:
        need_simulation("fuga simulate")
    from controller.cli.simulations import simulating  # noqa: PLC0415

    before = ctx.obj if isinstance(ctx.obj, Common) else Common()
    form = output or before.output or OutputFormat.TABLE
    asked = simulating.Asked(
        hosts=hosts,
        add_hosts=tuple(add_hosts or ()),
        without_hosts=tuple(filter(None, (without_hosts or "").split(","))),
        beside_unchanged=beside_unchanged,
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
        give_up_s=give_up,
        ideal_every=ideal_every,
    )
    if from_registry:
        from controller.cli.simulations import recording  # noqa: PLC0415

        if began_at is not None:
            raise BadInputError("--began-at is of a TRACE; with --from-registry say --since")
        window = recording.Window(since=since, until=until, anonymous=anonymous)
        if save_trace is not None:
            recording.save(window, save_trace)
            return
        asked = recording.on_registry(
            replace(asked, sweep=(*asked.sweep, *(words or ()))), window, out=out, resume=resume
        )
    elif since is not None or save_trace is not None or anonymous:
        raise BadInputError("--since, --save-trace and --anonymous go with --from-registry")
    else:
        trace, *more = words or [""]
        if not trace or "=" in trace:
            raise BadInputError("name a trace: fuga simulate TRACE --hosts 20:64c:256g")
        if hosts is None:
            raise BadInputError("name the hosts: --hosts FILE, or --hosts 20:64c:256g")
        asked = replace(
            asked,
            trace=trace,
            sweep=(*asked.sweep, *more),
            began_at_s=simulating.time_of(began_at, "--began-at"),
            until_s=simulating.seconds_of(until, "--until"),
        )
    simulating.run_study(
        asked, out=out, jobs=jobs, celery=celery, resume=resume, as_csv=as_csv, form=form
    )
