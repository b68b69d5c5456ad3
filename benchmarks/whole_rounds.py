"""Print how long a whole round takes on PostgreSQL with fsync on, phase by phase.

    python -m benchmarks.whole_rounds [--sizes 1250,5000,12500] [--policy fuga]
                                     [--spare host] [--volumes 1]

For each number of hosts eight times as many VMs run, and eight tenths as many
wait. The first round of a control centre reads everything; then all that it
placed runs, as many VMs wait again, and the second round decides them (*later*);
in the third a hundredth of them waits (*small*), as again in the fourth (*again*), before which
little was written; in the fifth a single VM (*one*). With --spare two more rounds of the first
size keep spare: the *first* that does, and a later one (*kept*). With --volumes each VM of two more
has so many: *new* ones, then ones with *files* on the hosts in turn. PostgreSQL is a server of its
own with the settings of the operations guide.

read      the register center, and its rows as arrays
solve     the policy, in its process, with what is sent there and back
check     the allocation, by code that shares nothing with policies
bound     what could have been placed, and what is fair, to measure the round by
commit    the placements in one transaction, with its flush to disk
record    inputs, outcome, history, and why who waits does, in the same transaction

Of each phase the seconds by the clock; in brackets those of the processor in all
processes together, which other load of the machine does not change. Below each
size the growth of a phase (of the processor's time) as a part of the growth of
its input: above 1 it grows faster.

At the end, the largest size's VMs per second against the same work done one VM at
a time: a transaction for each, which writes the same rows but no record of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from benchmarks.kit import parser, unless
from benchmarks.placement.one_at_a_time import place_one_by_one
from benchmarks.placement.phases import PHASES, Meter, MeteredDecider, MeteredStore, PhaseSeconds
from benchmarks.placement.rounds import progress
from benchmarks.registered import Loaded, ask, bring_volumes, load, run_what_was_placed
from controller.rounds.inputs import RoundCache
from controller.rounds.interfaces import PolicyChoice, RoundReport, Slot
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.round import run_round
from controller.settings import ControllerSettings
from registry import Registry, upgrade
from registry.rounds import CONTROL_LEASE, Lease
from tests.servers.postgres import DURABLE, PostgresServer, postgres_server, why_not

RUNNING_PER_HOST = 8
PENDING_PER_HOST = 0.8
SAMPLE = 200  #: VMs placed one at a time, at most
HOSTS_PER_SAMPLE = 1250  #: fewer hosts have no room for so many after the rounds


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        sizes=([1250, 5000, 12500], "numbers of hosts"),
        policy="fuga",
        spare=(None, "what may fail: host, zone or label:KEY"),
        volumes=(0, "volumes of each VM that waits"),
    ).parse_args(argv)
    say = progress()
    sizes = given.sizes
    print(f"{'hosts':>7}{'round':>8}{'VMs':>8}" + "".join(f"{p:>15}" for p in (*PHASES, "whole")))
    before: dict[str, RoundFigures] = {}
    with postgres_server(DURABLE, on_disk=True) as server:
        for hosts in sizes:
            before = measure_size(
                server,
                hosts,
                given.policy,
                before,
                last=hosts == sizes[-1],
                spare=given.spare,
                volumes=given.volumes,
            )
            say(f"{hosts} hosts measured")


class RoundFigures:
    """A round and the seconds of its phases."""

    def __init__(self, report: RoundReport, taken: dict[str, PhaseSeconds]) -> None:
        self.report = report
        self.taken = {phase: taken[phase] for phase in PHASES}
        self.taken["whole"] = PhaseSeconds(
            sum(each.clock for each in taken.values()),
            sum(each.ours for each in taken.values()),
            sum(each.database for each in taken.values()),
        )


def measure_size(
    server: PostgresServer,
    hosts: int,
    policy: str,
    before: dict[str, RoundFigures],
    *,
    last: bool,
    spare: str | None = None,
    volumes: int = 0,
) -> dict[str, RoundFigures]:
    """Measure and print the rounds of one size."""
    running, pending = round(hosts * RUNNING_PER_HOST), round(hosts * PENDING_PER_HOST)
    with ExitStack() as stack:
        url = stack.enter_context(server.database())
        upgrade(url)
        loaded = load(url, hosts=hosts, running=running)
        registry = Registry.connect(url)
        stack.callback(registry.close)
        process = PolicyProcess()
        stack.callback(process.close)
        process.warm_up()
        pid = server.pid
        rounds = TimedRounds(registry, process, Meter(pid), policy)
        found: dict[str, RoundFigures] = {}
        few = pending // 100
        for name, vms in (
            ("first", pending), ("later", pending), ("small", few), ("again", few), ("one", 1),
        ):  # fmt: skip
            ask(loaded, vms)
            found[name] = rounds.run()
            print_round(hosts, name, found[name])
            if name in before:
                print_growth(found[name], before[name])
            run_what_was_placed(loaded)
        if spare is not None:
            keeping = TimedRounds(registry, process, rounds.meter, policy, spare)
            for name in ("spare", "kept"):
                ask(loaded, pending)
                kept = keeping.run()
                print_round(hosts, name, kept)
                run_what_was_placed(loaded)
            ratio = kept.taken["whole"].processor / found["later"].taken["whole"].processor
            print(f"{'':>15}a round that keeps spare takes {ratio:.2f} times a later one's time")
        for name in ("new", "files") if volumes else ():
            ask(loaded, pending)
            bring_volumes(loaded, volumes, with_files=name == "files")
            brought = rounds.run()
            print_round(hosts, name, brought)
            run_what_was_placed(loaded)
            ratio = brought.taken["whole"].processor / found["later"].taken["whole"].processor
            print(f"{'':>15}a round with such volumes takes {ratio:.2f} times a later one's time")
        if last:
            sample = sample_of(hosts)
            compare_with_one_at_a_time(loaded, rounds, found["later"], sample)
    return found


class TimedRounds:
    """The rounds of one control centre."""

    def __init__(
        self,
        registry: Registry,
        process: PolicyProcess,
        meter: Meter,
        policy: str,
        spare: str | None = None,
    ) -> None:
        self.meter = meter
        self._running = registry.plans
        self._kept = RoundCache()
        self._store = MeteredStore(registry, meter)
        self._decider = MeteredDecider(process, meter)
        settings = ControllerSettings()
        self._choice = PolicyChoice(
            name=policy,
            parameters=settings.policy_parameters,
            budget_units=settings.budget_units,
            decision_time_s=settings.decision_time_s,
            spare=spare,
        )
        lease = registry.leases.acquire(CONTROL_LEASE, "cc-1", 3600)
        assert lease is not None
        self.lease: Lease = lease

    def run(self) -> RoundFigures:
        slot = Slot(start_at=datetime.now(UTC), length_s=5.0)
        with self.meter.measuring("read"):
            report = run_round(
                slot,
                self.lease,
                self._choice,
                store=self._store,
                decider=self._decider,
                running=self._running,
                kept=self._kept,
            )
        assert report is not None
        return RoundFigures(report, self.meter.taken)


def print_round(hosts: int, name: str, measured: RoundFigures) -> None:
    cells = (f"{each.clock:.3f} ({each.processor:.3f})" for each in measured.taken.values())
    line = f"{hosts:>7}{name:>8}{measured.report.placed:>8}"
    print(line + "".join(f"{cell:>15}" for cell in cells), flush=True)


def print_growth(measured: RoundFigures, before: RoundFigures) -> None:
    grown = measured.report.placed / before.report.placed
    cells = (
        f"{now.processor / then.processor / grown:.2f}"
        for now, then in zip(measured.taken.values(), before.taken.values(), strict=True)
    )
    print(f"{'× ' + format(grown, '.1f'):>23}" + "".join(f"{cell:>15}" for cell in cells))


def sample_of(hosts: int) -> int:
    """Return the number of VMs to place one at a time for a number of hosts."""
    return max(1, min(SAMPLE, SAMPLE * hosts // HOSTS_PER_SAMPLE))


def compare_with_one_at_a_time(
    loaded: Loaded, rounds: TimedRounds, later: RoundFigures, sample: int
) -> None:
    print(f"\n{'VMs per second':<46}{'by the clock':>14}{'of the processor':>18}")
    whole = later.taken["whole"]
    per_vm = (whole.clock / later.report.placed, whole.processor / later.report.placed)
    print_rate("a round for all of them", per_vm, per_vm)
    ask(loaded, 2 * sample)
    for how, by_query in (("asked of the database", True), ("known beforehand", False)):
        taken = place_one_by_one(loaded.url, rounds.lease, sample, rounds.meter, by_query=by_query)
        one = (taken.clock / sample, taken.processor / sample)
        print_rate(f"one at a time, hosts {how}", one, per_vm)
    run_what_was_placed(loaded)
    taken_each = []
    for _ in range(5):
        ask(loaded, 1)
        taken_each.append(rounds.run().taken["whole"])
    one = (min(each.clock for each in taken_each), min(each.processor for each in taken_each))
    print_rate("a round for each", one, per_vm)


def print_rate(name: str, one: tuple[float, float], of_all: tuple[float, float]) -> None:
    """Print VMs per second, and the time per VM relative to that of a whole round."""
    cells = (f"{1 / each:.1f} (÷ {each / of:.0f})" for each, of in zip(one, of_all, strict=True))
    print(f"  {name:<42}" + "".join(f"{cell:>17}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
