"""One run: tenants ask, faults strike, all heals, the checker looks."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from psycopg.rows import dict_row

from tests.chaos import checker, healing
from tests.chaos.checker import Finding
from tests.chaos.faults import Fault
from tests.chaos.scrapes import Scrapes
from tests.chaos.sightings import Watch
from tests.chaos.site import Site
from tests.chaos.tenants import Load, Record
from tests.running import eventually

Say = Callable[[str], None]
_SHOWN = ("process", "point", "host", "until", "domain", "tasks", "messages", "failed_builds")


@dataclass
class Struck:
    """A fault that happened."""

    kind: str
    told: dict[str, object]
    lasted_s: float
    heal_s: float


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    took_s: float = 0.0


def run(site: Site, kinds: Sequence[type[Fault]], seed: int, say: Say) -> Outcome:
    """Strike a site with these faults, one after another, and look at what is left."""
    began = time.monotonic()
    outcome = Outcome(seed)
    record = Record(site.folder / "record.jsonl")
    load = Load(site, record, seed)
    watch = Watch([host.lab.uri for host in site.hosts], record)
    scrapes = Scrapes(site.sockets, record)
    try:
        for each in (watch, scrapes, load):
            each.start()
        _strike_all(site, kinds, outcome, record, scrapes, say)
        load.end()
        unhealed = healing.wait_until_settled(site)
        load.start_what_is_off()
        unhealed += healing.wait_until_settled(site)
        watch.end()
        scrapes.end()
    finally:  # whoever takes the site down has the processor for himself
        for each in (watch, scrapes, load):
            each.stop.set()
    found = _check(site, record)
    load.give_all_back()
    unhealed += healing.wait_until_empty(site)
    found += [each for each in _check(site, record) if each not in found]
    outcome.findings += [*(Finding("not settled", "the end", what) for what in unhealed), *found]
    outcome.counts = load.counts() + Counter(
        {"looks for VMs that run twice": watch.looks, "most guests at a time": watch.most_guests}
    )
    outcome.took_s = time.monotonic() - began
    return outcome


def _strike_all(
    site: Site,
    kinds: Sequence[type[Fault]],
    outcome: Outcome,
    record: Record,
    scrapes: Scrapes,
    say: Say,
) -> None:
    scrapes.catch_up()
    # Something has to be there that can be hurt.
    eventually(
        lambda: site.sql("SELECT 1 FROM vms WHERE observed = 'running' LIMIT 1"),
        within_s=healing.HEAL_S,
    )
    for number, kind in enumerate(kinds, start=1):
        fault = kind(site, random.Random(f"{outcome.seed} {number}"))
        struck, unhealed = _strike(fault, record)
        scrapes.catch_up()
        outcome.struck.append(struck)
        outcome.findings += [Finding("not healed", fault.kind, what) for what in unhealed]
        say(_line(number, len(kinds), struck))


def _strike(fault: Fault, record: Record) -> tuple[Struck, list[str]]:
    record.write("strike", kind=fault.kind)
    began = time.monotonic()
    try:
        told = fault.inject()
    finally:
        fault.lift()
    over = time.monotonic()
    record.write("over", kind=fault.kind, **told)
    unhealed = healing.wait_until_healed(fault.site)
    healed = time.monotonic()
    record.write("healed", kind=fault.kind)
    return Struck(fault.kind, told, lasted_s=over - began, heal_s=healed - over), unhealed


def _line(number: int, of: int, struck: Struck) -> str:
    told = " ".join(f"{key}={struck.told[key]}" for key in _SHOWN if key in struck.told)
    return (
        f"{number:3}/{of} {struck.kind:46} {told:46} lasted {struck.lasted_s:5.1f} s,"
        f" healed in {struck.heal_s:5.1f} s"
    )


def _check(site: Site, record: Record) -> list[Finding]:
    def sql(query: str) -> list[dict[str, object]]:
        with site.postgres.connect() as connection:
            return connection.cursor(row_factory=dict_row).execute(query.encode()).fetchall()

    uris = {host.name: host.lab.uri for host in site.hosts}
    return checker.check(sql, checker.seen_by_virsh(uris), record.read())
