"""Print how long plans of moves take through the register center, phase by phase.

    python -m benchmarks.whole_plans [--sizes 1250,12500]

For each number of hosts sixteen times as many VMs run, in requests of five, on a PostgreSQL
of its own with the settings of the operations guide.

read      hosts, requests, and every VM with what it holds
arrays    these as what a plan is decided on
encode    the same as it is stored, and sent to the process that decides
decode    and read there
evacuate  one host in a hundred is emptied
balance   as many moves as pay, at most 500
stored    what the inputs of a plan take in the database, compressed

Seconds of the processor, ours alone ("read" also waits for the database: by the clock). Below
each size the growth of a phase as a part of that of the VMs: above 1 it grows faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.kit import parser, unless
from benchmarks.placement.rounds import progress
from benchmarks.registered import load
from controller.plans.plan_inputs import PlanInputs, decode_plan_inputs
from controller.rounds.running_state import to_running
from placement.rebalancing.balance import BALANCE_OBJECTIVE, balance
from placement.rebalancing.check import check_plan
from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.model import RebalanceLimits
from registry import Registry, upgrade
from tests.servers.postgres import DURABLE, PostgresServer, postgres_server, why_not

VMS_PER_HOST: Final = 16
PHASES: Final = ("read", "arrays", "encode", "decode", "evacuate", "balance")


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, sizes=([1250, 12500], "numbers of hosts")).parse_args(argv)
    say = progress()
    print(
        f"{'hosts':>7}{'VMs':>8}{'kinds':>7}"
        + "".join(f"{phase:>10}" for phase in PHASES)
        + f"{'moves':>12}{'stored':>10}"
    )
    before: dict[str, float] = {}
    with postgres_server(DURABLE, on_disk=True) as server:
        for hosts in given.sizes:
            now = measured(server, hosts)
            if before:
                grown = now["VMs"] / before["VMs"]
                parts = [f"{now[p] / before[p] / grown:>10.2f}" for p in PHASES]
                print(f"{'':>22}{''.join(parts)}")
            before = now
            say(f"{hosts} hosts measured")


def measured(server: PostgresServer, hosts: int) -> dict[str, float]:
    """Measure plans on one number of hosts, and print the phases."""
    took: dict[str, float] = {}

    def timed(phase: str, run: Callable[[], Any], clock: Callable[[], float]) -> Any:
        started = clock()
        result = run()
        took[phase] = clock() - started
        return result

    with server.database() as url:
        upgrade(url)
        load(url, hosts=hosts, running=hosts * VMS_PER_HOST, larger=3)
        registry = Registry.connect(url)
        view = timed("read", lambda: registry.plans.view_running(rest_s=3600), time.perf_counter)
        registry.close()
    running, names = timed("arrays", lambda: to_running(view), time.process_time)
    inputs = PlanInputs(
        kind="balance", arguments={}, running=running, names=names, limits=RebalanceLimits(), seed=0
    )
    data = timed("encode", inputs.encode, time.process_time)
    read = timed("decode", lambda: decode_plan_inputs(data), time.process_time).running
    leaving = range(hosts // 100)
    plans = [
        timed("evacuate", lambda: evacuate(read, leaving), time.process_time),
        timed(
            "balance",
            lambda: balance(read, BALANCE_OBJECTIVE.with_given({"most_moves": 500})),
            time.process_time,
        ),
    ]
    for plan in plans:
        check_plan(read, plan)
    took["VMs"] = float(len(running))
    moves = "/".join(str(len(plan.moves)) for plan in plans)
    print(
        f"{hosts:>7}{len(running):>8}{len(running.demand):>7}"
        + "".join(f"{took[phase]:>10.2f}" for phase in PHASES)
        + f"{moves:>12}{len(data) / 2**20:>6.1f} MiB",
        flush=True,
    )
    return took


if __name__ == "__main__":
    main()
