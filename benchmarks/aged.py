"""Print what daily commands and processes take on a register a year old, against a young one.

    python -m benchmarks.aged [--gone 500000] [--running 5000] [--hosts 500] [--repeats 5]

Both have the same hosts and VMs that run. In the old one ``--gone`` VMs came and went in the
year before, with six events each, a round for each minute, and a call of the API for each
VM; in the young one the same of a fortnight. PostgreSQL is a server of its own with its usual
settings; each cell is the least of the repeats in milliseconds of the clock, taken in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from benchmarks.kit import by_clock, parser, unless
from benchmarks.registered import AMOUNTS, RESOURCES, Loaded, ask, connected, load, tidy
from registry import Registry, RequestState, VmState, upgrade
from registry.admin import Periods
from tests.register import ACTOR, a_report, take_lease
from tests.servers.postgres import DURABLE, postgres_server, why_not

VMS_PER_REQUEST: Final = 5
EVENTS_PER_VM: Final = 6
YEAR_DAYS: Final = 364
YOUNG_DAYS: Final = 14
ROUNDS_A_DAY: Final = 24 * 60
INPUTS: Final = 7 * ROUNDS_A_DAY - 60
WAITING: Final = 200
MAX_LIFE_H: Final = 48
PERIODS: Final = Periods()

#: A key like `registry.db.ids.uuid7`: its time, then what it is of and its number.
_KEY: Final = """(
    lpad(to_hex((extract(epoch FROM {at}) * 1000)::bigint), 12, '0') || '7{kind}00'
    || '8000' || lpad(to_hex({n}), 12, '0'))::uuid"""
_AT: Final = "(now() - interval '1 day' * {days} * (1 - {n}::float8 / {most}))"


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, gone=500_000, running=5_000, hosts=500, repeats=5).parse_args(argv)
    print(f"{given.running} VMs on {given.hosts} hosts, {given.gone} gone; milliseconds")
    print(f"{'':<34}{'young':>10}{'old':>10}{'ratio':>8}")
    with (
        postgres_server(DURABLE, on_disk=True) as server,
        server.database() as young,
        server.database() as old,
    ):
        for url, days in ((young, YOUNG_DAYS), (old, YEAR_DAYS)):
            gone = given.gone * days // YEAR_DAYS
            fill(url, hosts=given.hosts, running=given.running, gone=gone, days=days)
        compare(young, old, given.repeats)


def compare(young: str, old: str, repeats: int) -> dict[str, float]:
    """Print the time of each action on the young and the old register; return the ratios."""
    registers = (Registry.connect(young), Registry.connect(old))
    of_each = [daily(registry) for registry in registers]
    ratios = {}
    for name in of_each[0]:
        taken: list[list[float]] = [[], []]
        for _ in range(repeats):
            for which, actions in enumerate(of_each):
                taken[which].append(1000 * by_clock(actions[name])[1])
        young_ms, old_ms = min(taken[0]), min(taken[1])
        ratios[name] = old_ms / young_ms
        print(f"{name:<34}{young_ms:>10.1f}{old_ms:>10.1f}{ratios[name]:>8.2f}", flush=True)
    for registry in registers:
        registry.close()
    return ratios


def daily(registry: Registry) -> Mapping[str, Callable[[], Any]]:
    """Return the daily actions of users and processes, by name."""
    lease = take_lease(registry, length_s=36_000)
    tenant = registry.tenants.list().items[1].name
    vm = registry.vms.list(limit=1).items[0]
    host = registry.hosts.list(limit=1).items[0]
    report = a_report()
    until = registry.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = {"since": (until - timedelta(days=1)).replace(day=1), "until": until}
    weeks = {"since": until - timedelta(days=28), "until": until}
    part = {"since": until - timedelta(days=9.5), "until": until - timedelta(days=8)}
    return {
        "doctor": lambda: registry.check(history=False),
        "purge": lambda: registry.retention.purge_batch(PERIODS, lease=lease),
        "what a purge would take": lambda: registry.retention.count_due(PERIODS),
        "the read of a round": lambda: registry.rounds.read_cluster(lease),
        "metrics": registry.fleet,
        "sweep": lambda: registry.assignments.send_due_tasks(100, 10.0),
        "end of overdue builds": lambda: registry.assignments.end_overdue(3600.0),
        "expiry": registry.requests.expire,
        "a report": lambda: registry.hosts.record_report(host.id, report),
        "reconciliation": registry.differences.list,
        "VMs": registry.vms.list,
        "VMs of a tenant": lambda: registry.vms.list(tenant=tenant),
        "VMs on a host": lambda: registry.vms.list(host=host.name),
        "VMs by name": lambda: registry.vms.list(name=vm.name),
        "VMs that are lost": lambda: registry.vms.list(state=VmState.LOST),
        "VMs that run": lambda: registry.vms.list(state=VmState.RUNNING),
        "VMs that are unknown": lambda: registry.vms.list(state=VmState.UNKNOWN),
        "requests that wait": lambda: registry.requests.list(state=RequestState.PENDING),
        "requests of a tenant that wait": lambda: registry.requests.list(
            tenant=tenant, state=RequestState.PENDING
        ),
        "requests that are placed": lambda: registry.requests.list(state=RequestState.PLACED),
        "requests of a tenant": lambda: registry.requests.list(tenant=tenant),
        "a request": lambda: registry.requests.get(vm.request_id),
        "events of a kind": lambda: registry.events.list(kind="host_health"),
        "events of a kind, none": lambda: registry.events.list(kind="host_fenced"),
        "events of a tenant and kind": lambda: registry.events.list(
            tenant=tenant, kind="quota_set"
        ),
        "events of a VM": lambda: registry.events.list(subject_id=str(vm.id)),
        "rounds": registry.rounds.list,
        "the last round": registry.rounds.last,
        "a month of a tenant by type": lambda: registry.usage.read(
            **month, tenant=tenant, by="type"
        ),
        "28 days of a tenant by type": lambda: registry.usage.read(
            **weeks, tenant=tenant, by="type"
        ),
        "a month of all by tenant": lambda: registry.usage.read(**month, by="tenant"),
        "this month of a tenant": lambda: registry.usage.read(since=month["until"], tenant=tenant),
        "a page of closed months": registry.closed_months.list,
        "parts of days of a tenant": lambda: registry.usage.read(**part, tenant=tenant),
        "calls of a tenant": lambda: registry.audit.list(tenant=tenant),
    }


def fill(url: str, *, hosts: int, running: int, gone: int, days: int) -> None:
    """Fill a fresh database with running VMs and with VMs that are gone."""
    upgrade(url)
    with connected(url) as connection:
        connection.execute(f"ALTER SEQUENCE events_id_seq RESTART {gone * EVENTS_PER_VM + 1}")
        connection.execute(f"ALTER SEQUENCE rounds_number_seq RESTART {days * ROUNDS_A_DAY + 1}")
    loaded = load(url, hosts=hosts, running=running)
    age(loaded, gone, days)
    ask(loaded, WAITING)
    sum_up_usage(url)
    close_months(url)
    tidy(url)


def sum_up_usage(url: str) -> None:
    """Add the VMs that are gone to the daily sums of usage, as a control centre does."""
    registry = Registry.connect(url)
    begin = time.monotonic()
    added = 0
    while batch := registry.usage.add_ended():
        added += batch
    print(f"{added} assignments added to usage in {time.monotonic() - begin:.0f} s", flush=True)
    registry.close()


def close_months(url: str) -> None:
    """Close all months that are over, with prices; print what the longest took."""
    registry = Registry.connect(url)
    registry.prices.set_currency("EUR", actor=ACTOR)
    this = registry.now().date().replace(day=1)
    first = (this - timedelta(days=YEAR_DAYS)).replace(day=1)
    for resource, price in (("vcpus", "0.02"), ("memory_mib", "0.0000048828125")):
        registry.prices.set(resource, Decimal(price), since=first, actor=ACTOR)
    month, most = first, 0.0
    while month < this:
        most = max(most, by_clock(partial(registry.closed_months.close, month, actor=ACTOR))[1])
        month = (month + timedelta(days=32)).replace(day=1)
    print(f"a month closes in {most:.2f} s at most", flush=True)
    registry.close()


def age(loaded: Loaded, gone: int, days: int) -> None:
    """Insert the rows of past days without triggers; the rows already fulfil their rules."""
    most_rounds = days * ROUNDS_A_DAY
    round_at = _AT.format(n="n", most=most_rounds, days=days)
    requests = gone // VMS_PER_REQUEST
    request_at = _AT.format(n="n", most=requests, days=days)
    of_request = f"((n - 1) / {VMS_PER_REQUEST} + 1)"
    at = _AT.format(n=of_request, most=requests, days=days)
    lived = f"{at} - interval '1 hour' * (n %% {MAX_LIFE_H} + 1)"
    request_key = _KEY.format(at=at, kind="1", n=of_request)
    vm_key, key = (_KEY.format(at=at, kind=kind, n="n") for kind in "23")
    tenant = f"(%(tenants)s::uuid[])[{{n}} %% {len(loaded.tenants)} + 1]"
    name = f"(%(names)s::text[])[{{n}} %% {len(loaded.tenants)} + 1]"
    of_type = f"{{n}} %% {len(loaded.types)} + 1"
    round_ = f"(({of_request})::bigint * {most_rounds} / {requests})"
    statements = (
        f"""INSERT INTO rounds (number, holder, epoch, slot_start_at, slot_length_s, policy,
                decided_by, parameters, seed, engine_version, work, cut, inputs_digest, shares,
                timings, placed, left_out, dropped, created_at)
            SELECT n, 'cc', 1, {round_at}, 60, 'fuga', 'policy', '{{}}', 7,
                '1', 1, false, '', '[]', '{{}}', 1, 0, 0, {round_at}
            FROM generate_series(1, {most_rounds}) n""",
        f"""INSERT INTO round_inputs (round, inputs, packed_outcome)
            SELECT n, decode(repeat('00', 2000), 'hex'), ''::bytea
            FROM generate_series({most_rounds - INPUTS}, {most_rounds}) n""",
        f"""INSERT INTO requests (id, name, tenant_id, vm_type_id, count, min_count, requires,
                state, created_at, updated_at)
            SELECT {_KEY.format(at=request_at, kind="1", n="n")}, 'gone-' || n,
                {tenant.format(n="n")}, (%(types)s::uuid[])[{of_type.format(n="n")}],
                {VMS_PER_REQUEST}, 1, '[]', 'released', {request_at}, {request_at}
            FROM generate_series(1, {requests}) n""",
        f"""INSERT INTO vms (id, name, request_id, tenant_id, desired, observed, generation,
                created_at, deleted_at)
            SELECT {vm_key}, 'gone-' || n, {request_key}, {tenant.format(n=of_request)},
                'deleted', 'absent', 1, {at}, {at}
            FROM generate_series(1, {gone}) n""",
        f"""INSERT INTO interfaces (vm_id, mac)
            SELECT {vm_key}, '06:' || substr(lpad(to_hex(n), 10, '0'), 1, 2) || ':'
                || substr(lpad(to_hex(n), 10, '0'), 3, 2) || ':'
                || substr(lpad(to_hex(n), 10, '0'), 5, 2) || ':'
                || substr(lpad(to_hex(n), 10, '0'), 7, 2) || ':'
                || substr(lpad(to_hex(n), 10, '0'), 9, 2)
            FROM generate_series(1, {gone}) n""",
        f"""INSERT INTO assignments (id, vm_id, host_id, tenant_id, round, generation, state,
                created_at, activated_at, released_at)
            SELECT {key}, {vm_key}, hosts.ids[n %% cardinality(hosts.ids) + 1],
                {tenant.format(n=of_request)}, greatest(1, {round_}), 1, 'released',
                {lived}, {lived}, {at}
            FROM generate_series(1, {gone}) n, (SELECT array_agg(id) AS ids FROM hosts) hosts""",
        f"""INSERT INTO assignment_resources (assignment_id, resource, host_id, amount)
            SELECT {key}, (%(resources)s::text[])[place],
                hosts.ids[n %% cardinality(hosts.ids) + 1],
                (%(amounts)s::bigint[][])[{of_type.format(n=of_request)}][place]
            FROM generate_series(1, {gone}) n, generate_series(1, {len(RESOURCES)}) place,
                (SELECT array_agg(id) AS ids FROM hosts) hosts""",
        f"""INSERT INTO events (id, at, actor, kind, subject_type, subject_id, tenant, from_state,
                event, to_state, data)
            SELECT (n - 1) * {EVENTS_PER_VM} + step, {at}, 'worker', kind, type,
                CASE type WHEN 'vm' THEN {vm_key} ELSE {key} END::text,
                {name.format(n=of_request)}, before, event, after,
                jsonb_build_object('vm', {vm_key})
            FROM generate_series(1, {gone}) n, (VALUES
                (1, 'assignment_state', 'assignment', NULL, NULL, 'reserved'),
                (2, 'assignment_state', 'assignment', 'reserved', 'claimed', 'creating'),
                (3, 'assignment_state', 'assignment', 'creating', 'started', 'active'),
                (4, 'vm_desired', 'vm', 'running', 'delete', 'deleted'),
                (5, 'assignment_state', 'assignment', 'active', 'delete_requested', 'releasing'),
                (6, 'assignment_state', 'assignment', 'releasing', 'proven_absent', 'released')
            ) AS steps (step, kind, type, before, event, after)""",
        f"""INSERT INTO audit (at, request_id, token, tenant, address, method, path, status)
            SELECT {at}, n::text, {name.format(n=of_request)}, {name.format(n=of_request)}, '::1',
                'DELETE', '/v1/vms/' || {vm_key}, 202
            FROM generate_series(1, {gone}) n""",
    )
    given = {
        "tenants": [key for key, _ in loaded.tenants],
        "names": [name for _, name in loaded.tenants],
        "types": list(loaded.types),
        "resources": list(RESOURCES),
        "amounts": AMOUNTS.tolist(),
    }
    with connected(loaded.url) as connection:
        connection.execute("SET session_replication_role = replica")
        for statement in statements:
            connection.execute(statement.encode(), given)


if __name__ == "__main__":
    main()
