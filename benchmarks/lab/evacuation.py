"""Print how long evacuating a host of real guests takes, through fuga and by a bare script.

    python -m benchmarks.lab.evacuation [--guests 20] [--repeats 2]

The lab and the small site of `benchmarks.lab.guests`. Idle guests, booted on the first host, go to
the two others. ``fuga`` is timed from the request for the plan, approved in advance, until the
ledger holds nothing on the host: the guests run elsewhere and their disks there are removed.
``bare`` is two processes of `benchmarks.lab.bare_moves`, one move after the other each: fuga moves
two VMs from a host at a time (`FUGA_MOVES_PER_HOST`). Both go first in turn; two guests before
them are not counted. ``ratio`` is fuga to bare, of the medians. ``standstill`` is how long a
guest stood still, by libvirt's statistics at the destination: the median, and the longest of
each series, of which the medians are compared. ``s/guest`` is processor time for a guest: of
fuga's processes, of its servers, of the bare script's, and of the hosts under each.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.kit import parser, unless
from benchmarks.lab.guests import (
    WORKERS,
    GuestSite,
    LabSite,
    Scripts,
    no_broker,
    running_lab,
    running_site,
)
from lab import cluster
from registry import HostAdminEvent
from registry.moves import PlanKind
from tests.chaos.processes import WAIT_S
from tests.register import ACTOR, add_request
from tests.servers.postgres import why_not
from tests.servers.running import eventually
from tests.system.test_first_steps import READY

#: What an evacuation through fuga should take at most, of a bare one; and its longest standstill.
TARGET: Final = 1.25
TARGET_STILL: Final = 1.5
WARM_UP: Final = 2
_LOOK_S: Final = 0.02
_HELD_THERE: Final = """
    SELECT count(*) FROM assignments a JOIN hosts h ON h.id = a.host_id
    WHERE h.name = %s AND a.state <> 'released'"""
_HELD: Final = "SELECT count(*) FROM assignments WHERE state <> 'released'"
_RUN: Final = "SELECT count(*) FROM vms WHERE observed = 'running'"
_STILL: Final = """
    SELECT m.downtime_ms FROM moves m JOIN plan_moves p ON p.move_id = m.id
    WHERE p.plan_id = %s AND m.state = 'moved'"""


@dataclass(frozen=True)
class EvacuationFigures:
    """The figures of one evacuation."""

    took_s: float
    still_ms: Sequence[int]  #: of each guest
    cpu_s: Mapping[str, float]  #: by what used it


class Evacuated:
    """The first host of a lab, filled and emptied through fuga."""

    def __init__(self, lab: LabSite, site: GuestSite) -> None:
        self._lab, self._site = lab, site
        self._first, *self._others = [host.name for host in lab.hosts]

    def measure(self, count: int) -> EvacuationFigures:
        """Boot ``count`` guests, move them away, and remove them."""
        hosts, names = self._site.registry.hosts, (self._first, *self._others)
        for name in names:
            hosts.update(name, overrides={"vcpus": count}, actor=ACTOR)
        for name in self._others:
            hosts.change_admin(name, HostAdminEvent.DRAIN, actor=ACTOR)
        with booted(self._lab, count):
            request = add_request(self._site.registry, count, vm_type="tiny").id
            eventually(lambda: self._site.ask(_RUN) == [count], within_s=WAIT_S)
        for name in self._others:
            room = {"vcpus": -(-count // len(self._others))}  # so that they go to both, as of bare
            hosts.update(name, overrides=room, actor=ACTOR)
            hosts.change_admin(name, HostAdminEvent.ACTIVATE, actor=ACTOR)

        before, started = self._site.cpu_s(), time.monotonic()
        hosts.change_admin(self._first, HostAdminEvent.DRAIN, actor=ACTOR)
        plan = self._site.registry.plans.create(
            PlanKind.EVACUATE, {"hosts": [self._first]}, approve=True, actor=ACTOR
        )
        eventually(
            lambda: self._site.ask(_HELD_THERE, self._first) == [0],
            within_s=WAIT_S,
            every_s=_LOOK_S,
        )
        took_s = time.monotonic() - started
        after = self._site.cpu_s()
        still_ms = self._site.ask(_STILL, plan.id)
        assert len(still_ms) == count, f"{len(still_ms)} of {count} moves arrived"
        hosts.change_admin(self._first, HostAdminEvent.ACTIVATE, actor=ACTOR)
        self._site.registry.requests.delete(request, actor=ACTOR)
        eventually(lambda: self._site.ask(_HELD) == [0], within_s=WAIT_S)
        return EvacuationFigures(
            took_s, still_ms, {name: after[name] - before[name] for name in before}
        )


class ScriptEvacuation:
    """The evacuation of a host by two processes of the bare script."""

    def __init__(self, lab: LabSite, scripts: Scripts) -> None:
        self._lab, self._scripts = lab, scripts

    def measure(self, count: int) -> EvacuationFigures:
        """Boot ``count`` guests, move them away, and remove them."""
        with booted(self._lab, count):
            self._scripts.tell([f"build {count // WORKERS}"] * WORKERS)
        before, hosts_before = self._scripts.cpu_s(), self._lab.cpu_s()
        started = time.monotonic()
        answers = self._scripts.tell(["leave"] * WORKERS)
        took_s = time.monotonic() - started
        cpu_s = {"bare": self._scripts.cpu_s() - before, "hosts": self._lab.cpu_s() - hosts_before}
        still_ms = [int(word) for answer in answers for word in answer]
        self._scripts.tell(["remove"] * WORKERS)
        return EvacuationFigures(took_s, still_ms, cpu_s)


@contextmanager
def booted(lab: LabSite, count: int) -> Iterator[None]:
    """Wait at the end of the block until ``count`` more guests have reported that they are up."""
    known = _said(lab)
    yield
    eventually(lambda: len(_said(lab) - known) == count, within_s=WAIT_S, every_s=1.0)


def _said(lab: LabSite) -> set[str]:
    logs = (lab.hosts[0].log_dir / "qemu").glob("*.serial")
    return {uuid for log in logs for uuid in READY.findall(log.read_text(errors="replace"))}


@unless(cluster.real_hosts_obstacle, why_not, no_broker)
def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        guests=("20", f"how many, multiples of {WORKERS}, commas between"),
        repeats=(2, "evacuations on each side"),
    )
    given = arguments.parse_args(argv)
    counts = given.guests
    if any(count < WORKERS or count % WORKERS for count in counts):
        arguments.error(f"--guests {given.guests}: multiples of {WORKERS}, one for each process")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and everything ends with us
    print(
        f"one host to two others, two moves at a time; the aims are at most {TARGET:g} of bare,"
        f" and {TARGET_STILL:g} of its longest standstill"
    )
    print(
        f"{'guests':>6}{'fuga s':>8}{'bare s':>8}{'ratio':>7}"
        f"{'standstill ms: fuga':>21}{'longest':>9}{'bare':>6}{'longest':>9}{'ratio':>7}"
        f"{'s/guest: fuga':>15}{'servers':>9}{'hosts':>7}{'bare':>7}{'hosts':>7}"
    )
    with (
        running_lab() as lab,
        running_site(lab) as site,
        Scripts.running("benchmarks.lab.bare_moves", lab) as scripts,
    ):
        sides = {"fuga": Evacuated(lab, site), "bare": ScriptEvacuation(lab, scripts)}
        for side in sides.values():
            side.measure(WARM_UP)  # type: ignore[attr-defined]
        for count in counts:
            found: dict[str, list[EvacuationFigures]] = {"fuga": [], "bare": []}
            for repeat in range(given.repeats):
                for name in sides if repeat % 2 == 0 else reversed(sides):
                    found[name].append(sides[name].measure(count))  # type: ignore[attr-defined]
            show(count, found["fuga"], found["bare"])


def show(count: int, fuga: Sequence[EvacuationFigures], bare: Sequence[EvacuationFigures]) -> None:
    fuga_s, bare_s = (statistics.median(each.took_s for each in side) for side in (fuga, bare))
    usual = [
        statistics.median(ms for each in side for ms in each.still_ms) for side in (fuga, bare)
    ]
    longest = [statistics.median(max(each.still_ms) for each in side) for side in (fuga, bare)]

    def s(series: Sequence[EvacuationFigures], what: str) -> float:
        return statistics.median(each.cpu_s[what] for each in series) / count

    print(
        f"{count:>6}{fuga_s:>8.1f}{bare_s:>8.1f}{fuga_s / bare_s:>7.2f}"
        f"{usual[0]:>21.0f}{longest[0]:>9.0f}{usual[1]:>6.0f}{longest[1]:>9.0f}"
        f"{longest[0] / longest[1]:>7.2f}"
        f"{s(fuga, 'fuga'):>15.2f}{s(fuga, 'servers'):>9.2f}{s(fuga, 'hosts'):>7.2f}"
        f"{s(bare, 'bare'):>7.2f}{s(bare, 'hosts'):>7.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
