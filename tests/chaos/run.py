"""One run: tenants ask, faults strike, some at a time, all heals, the checker looks."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from psycopg.rows import dict_row

from tests.chaos import checker, healing
from tests.chaos.callers.operators import Moving
from tests.chaos.callers.tenants import Load
from tests.chaos.checks.proofs import unproven
from tests.chaos.consoles import Ears
from tests.chaos.faults import ChaosFault
from tests.chaos.findings import Finding
from tests.chaos.guests import VOLUME_FILE
from tests.chaos.record import Record
from tests.chaos.scrapes import Scrapes
from tests.chaos.sightings import Watch
from tests.chaos.site import Site
from tests.servers.running import eventually

Say = Callable[[str], None]
_SHOWN = (
    "process", "point", "host", "until", "fenced", "domain", "tasks", "messages", "failed_builds"
)  # fmt: skip


@dataclass(frozen=True)
class Struck:
    """A fault that happened."""

    number: int
    kind: str
    told: dict[str, Any]
    lasted_s: float
    heal_s: float = 0.0  #: of all that struck with it


@dataclass
class ChaosOutcome:
    """What a run came to."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    took_s: float = 0.0

    def table(self) -> str:
        """Faults by kind with the time to heal, what tenants did, findings."""
        heal_s: defaultdict[str, list[float]] = defaultdict(list)
        for struck in self.struck:
            heal_s[struck.kind].append(struck.heal_s)
        lines = [
            f"seed {self.seed}: {len(self.struck)} faults in {self.took_s:.0f} s",
            f"  {'fault':46} {'times':>5} {'heal, median':>13} {'longest':>8}",
        ]
        for kind, times in sorted(heal_s.items()):
            lines.append(f"  {kind:46} {len(times):5} {median(times):11.1f} s {max(times):6.1f} s")
        lines += [f"  {what:46} {count:5}" for what, count in sorted(self.counts.items())]
        lines.append(f"  {'findings':46} {len(self.findings):5}")
        lines += [f"    {finding}" for finding in self.findings]
        return "\n".join(lines)


def run(
    site: Site,
    batches: Sequence[Sequence[type[ChaosFault]]],
    seed: int,
    say: Say,
    *,
    volumes: bool = True,
) -> ChaosOutcome:
    """Strike a site with these faults, one batch after another, and look at what is left.

    ``volumes``: tenants have some.
    """
    began = time.monotonic()
    outcome = ChaosOutcome(seed)
    record = Record(site.record_file)
    load = Load(site, record, seed, volumes=volumes)
    moving = Moving(site, record, seed)
    watch = Watch(site.hosts, record)
    ears = Ears({host.name: host.consoles for host in site.hosts}, record)
    scrapes = Scrapes(site.sockets, record)
    try:
        for each in (watch, ears, scrapes, load, moving):
            each.start()
        _strike_all(site, batches, outcome, record, scrapes, say)
        moving.end()
        load.end()
        unhealed = healing.wait_until_settled(site)
        watch.end()
        ears.end()
        scrapes.end()
    finally:  # whoever takes the site down has the processor for himself
        for each in (watch, ears, scrapes, load, moving):
            each.stop.set()
    if not unhealed:
        unhealed, found = _look(site, record, outcome, healing.wait_until_settled)
    else:
        found = _check(site, record, outcome)
    found += unproven(site.api_urls[0], site.tokens, site.public_key)
    moved = _what_became_of_moves(site)
    ended = _what_became_of_borrowed_vms(site)
    load.give_all_back()
    still_held, left = _look(site, record, outcome, healing.wait_until_empty)
    unhealed += still_held
    found += [each for each in left if each not in found]
    outcome.findings += [*(Finding("not settled", "the end", what) for what in unhealed), *found]
    outcome.counts += (
        load.counts()
        + moving.counts()
        + Counter(
            {
                "looks for VMs that run twice": watch.looks,
                "most guests at a time": watch.most_guests,
                "counts heard of guests": ears.heard,
                "counts heard of volumes": ears.heard_of_volumes,
                "counts refused by disks": ears.refused,
                **moved,
                **ended,
            }
        )
    )
    outcome.took_s = time.monotonic() - began
    return outcome


def _strike_all(
    site: Site,
    batches: Sequence[Sequence[type[ChaosFault]]],
    outcome: ChaosOutcome,
    record: Record,
    scrapes: Scrapes,
    say: Say,
) -> None:
    # Something has to be there that can be hurt.
    eventually(
        lambda: site.sql("SELECT 1 FROM vms WHERE observed = 'running' LIMIT 1"),
        within_s=healing.HEAL_S,
    )
    scrapes.catch_up()
    number, of = 0, sum(map(len, batches))
    for batch in batches:
        striking = []
        for kind in batch:
            number += 1
            fault = kind(site, random.Random(f"{outcome.seed} {number}"))
            striking.append(site.strikers.submit(_strike, number, fault, record, scrapes))
        struck = [each.result() for each in striking]
        over = time.monotonic()
        unhealed = healing.wait_until_healed(site)
        scrapes.catch_up()
        record.write("healed")
        heal_s = time.monotonic() - over
        names = " + ".join(each.kind for each in struck)
        outcome.findings += [Finding("not healed", names, what) for what in unhealed]
        for each in struck:
            outcome.struck.append(replace(each, heal_s=heal_s))
            say(_line(each, of))
        say(f"        healed in {heal_s:.1f} s")


def _strike(number: int, fault: ChaosFault, record: Record, scrapes: Scrapes) -> Struck:
    shown = scrapes.mark()
    fault.until_shown = lambda told: scrapes.wait_until_shown(told, shown)
    record.write("strike", fault=number, kind=fault.kind)
    began = time.monotonic()
    try:
        told = {"kind": fault.kind, **fault.inject()}
        scrapes.wait_until_shown(told, shown)
    finally:
        if not fault.site.ending.is_set():
            fault.lift()
            fault.site.leave(fault)
    record.write("over", fault=number, **told)
    return Struck(number, fault.kind, told, lasted_s=time.monotonic() - began)


def _line(struck: Struck, of: int) -> str:
    told = " ".join(f"{key}={struck.told[key]}" for key in _SHOWN if key in struck.told)
    return (
        f"{struck.number:3}/{of} {struck.kind:46} lasted {struck.lasted_s:5.1f} s  {told}".rstrip()
    )


def _look(
    site: Site, record: Record, outcome: ChaosOutcome, wait: Callable[[Site], list[str]]
) -> tuple[list[str], list[Finding]]:
    """Return what does not come to rest, and what the checker finds when all has.

    Rounds go on and place what waited. Whatever changed while the checker looked, it has
    seen in two states: it looks again.
    """
    deadline = time.monotonic() + healing.HEAL_S
    while True:
        restless = wait(site)
        before = _last_event(site)
        at_rest = not healing.under_way(site)
        found = _check(site, record, outcome)
        if (at_rest and _last_event(site) == before) or restless or time.monotonic() > deadline:
            return restless, found


def _what_became_of_moves(site: Site) -> dict[str, int]:
    rows = site.sql("SELECT kind, state, count(*) FROM moves GROUP BY 1, 2")
    return {f"{kind} moves {state}": count for kind, state, count in rows}


def _what_became_of_borrowed_vms(site: Site) -> dict[str, int]:
    """Count borrowed VMs by what was announced of their ends, and closed months."""
    rows = site.sql(
        "SELECT 'ends of borrowed VMs ' || e.event, count(*) FROM events e"
        " JOIN vms v ON v.id::text = e.subject_id"
        " WHERE e.kind = 'spot_ending' AND v.borrowed GROUP BY 1"
        " UNION ALL SELECT 'VMs borrowed', count(*) FROM vms WHERE borrowed"
        " UNION ALL SELECT 'rounds with a memory', count(*) FROM rounds WHERE memory IS NOT NULL"
        " UNION ALL SELECT 'rounds signed', count(*) FROM round_hash_chain"
        " WHERE signature IS NOT NULL"
    )
    return dict(rows)


def _last_event(site: Site) -> int:
    number: int = site.sql("SELECT max(id) FROM events")[0][0]
    return number


def _check(site: Site, record: Record, outcome: ChaosOutcome) -> list[Finding]:
    def sql(query: str) -> list[dict[str, object]]:
        with site.postgres.connect() as connection:
            return connection.cursor(row_factory=dict_row).execute(query.encode()).fetchall()

    hosts = {host.name: (host.eyes, host.pool_dir) for host in site.hosts}
    seen = checker.seen_by_virsh(hosts)
    counted = [name for host in seen for name, disk in host.disks.items() if disk]
    on_volumes = len([name for name in counted if VOLUME_FILE.fullmatch(name)])
    outcome.counts |= Counter(
        {"disks with counts": len(counted) - on_volumes, "volumes with counts": on_volumes}
    )
    return checker.check(sql, seen, record.read())
