"""Prometheus metrics of the state in the database: tenants, hosts, tasks, the leader.

The API and the control centre both serve it. However often they are scraped, each reads
the database at most once in an interval.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final, get_args

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.queries.overdue_work import OverdueWork, Work, overdue_work
from controller.queries.tenant_shares import tenant_shares
from registry import AssignmentState, FenceState, HostAdmin, Registry, RequestState
from registry.admin import FleetCounts, FleetHost, FleetMoves, Liveness
from registry.moves import OPEN_MOVES, MoveState
from registry.reservations import OPEN_RESERVATIONS
from registry.usage import BudgetState, BudgetUse

log: Final = structlog.get_logger(__name__)

_TASK_STATES: Final = (
    AssignmentState.RESERVED,
    AssignmentState.CREATING,
    AssignmentState.RELEASING,
    AssignmentState.QUARANTINED,
    AssignmentState.LEAVING,
)
_HELD_STATES: Final = (*_TASK_STATES, AssignmentState.ACTIVE, AssignmentState.ARRIVING)
_OPEN_REQUESTS: Final = (RequestState.PENDING, RequestState.PARTLY_PLACED, RequestState.PLACED)
_ENDED_MOVES: Final = tuple(state for state in MoveState if state not in OPEN_MOVES)
_FENCE_STATES: Final = tuple(state for state in FenceState if state != FenceState.IDLE)
#: By name of the metric: its help text and labels.
_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "register_reachable": ("1 if the last read of the database succeeded.", ()),
    "vms_waiting": (
        "VMs that wait for placement, by the reason shown to their tenant.",
        ("reason",),
    ),
    "requests": ("Requests that have not ended, by state.", ("state",)),
    "reservations": ("Reservations that have not ended, by state.", ("state",)),
    "reserved_vms_short": ("VMs of reservations for which the last round found no room.", ()),
    "assignments": ("Assignments that hold capacity, by state.", ("state",)),
    "task_age_seconds": (
        "Age of the oldest assignment in a state that a worker must end.",
        ("state",),
    ),
    "moves": ("Moves of VMs that have not ended, by state.", ("state",)),
    "move_age_seconds": ("Age of the oldest move that has not ended.", ()),
    "moves_ended": ("Moves requested in the last day that have ended.", ("outcome",)),
    "move_standstill_seconds": (
        "Time that the guests of these moves stood still, of all together.",
        (),
    ),
    "move_standstill_max_seconds": ("The same, of the guest that stood still longest.", ()),
    "dominant_share": ("Dominant share of the pool.", ("tenant", "kind")),
    "entitlement": ("Share of the pool if all tenants have enough requests.", ("tenant", "kind")),
    "tenant_vms": ("VMs with an assignment.", ("tenant",)),
    "tenant_borrowed_vms": ("Borrowed VMs.", ("tenant",)),
    "tenant_borrowed": ("Amount held by borrowed VMs.", ("tenant", "resource")),
    "borrowed_vms": ("Borrowed VMs of all tenants, by whether their end is announced.", ("state",)),
    "budgets": ("Budgets of tenants and groups, by state.", ("state",)),
    "budget_limit": (
        "Amount of a budget for the month; only of those of which most is used.",
        ("tenant", "resource"),
    ),
    "budget_used": ("Part of it that is used.", ("tenant", "resource")),
    "budget_used_per_hour": ("What present VMs use of it in an hour.", ("tenant", "resource")),
    "budget_spent": ("1 while a budget is used up: new VMs wait.", ("tenant", "resource")),
    "budget_age_seconds": ("Time since the budgets were measured; of the oldest.", ()),
    "capacity": ("Capacity of a zone's hosts, without retired ones.", ("zone", "resource")),
    "committed": ("Amount held by assignments.", ("zone", "resource")),
    "host_capacity": ("Capacity of a host; only in a small pool.", ("host", "resource")),
    "host_committed": ("Amount held by assignments.", ("host", "resource")),
    "host_poll_age_seconds": ("Age of a host's last report; only in a small pool.", ("host",)),
    "poll_age_max_seconds": ("Age of the oldest last report of an active host.", ("zone",)),
    "hosts": ("Hosts that are not retired.", ("admin", "health")),
    "fences": ("Hosts that are down and to be fenced, by progress.", ("state",)),
    "hosts_in_backoff": ("Hosts held back after failed builds.", ()),
    "images_held": ("Images held because hosts stopped answering while they received them.", ()),
    "hosts_over_capacity": ("Hosts whose capacity is below their committed amount.", ()),
    "leftovers": ("Domains and volumes of released assignments, not removed yet.", ()),
    "strangers": ("Foreign domains on hosts.", ()),
    "work_unattended": (
        "1 while no process does this work: decide, build, or look (poll hosts).",
        ("work",),
    ),
    "processes_late": ("Processes that are silent or not ready, by kind of work.", ("work",)),
    "clock_ahead_seconds": (
        "Time by which the newest heartbeat or poll lies ahead of the database's clock.",
        (),
    ),
    "clock_stepped_back_seconds": (
        "Size of the last step of the database's clock within a day, if that was back; else 0.",
        (),
    ),
    "clock_stepped_ahead_seconds": (
        "Size of the last step of the database's clock within a day, if that was ahead; else 0.",
        (),
    ),
    "lease_held": ("1 while the control centre's lease is valid.", ("holder",)),
    "lease_epoch": ("Epoch of the control centre's lease.", ()),
    "slot_loop_paused": ("1 while the slot loop is paused.", ()),
    "operator_token_ends_seconds": (
        "Time until the first operator's token expires, of those used in the last week.",
        (),
    ),
    "backup_age_seconds": ("Time since the last backup by `fuga db backup`.", ()),
    "last_round": ("Number of the newest round.", ()),
    "last_round_age_seconds": ("Time since its slot began; idle slots leave no round.", ()),
    "last_round_placed": ("VMs placed by it.", ()),
    "last_round_not_placed": ("VMs left out by it.", ()),
    "last_round_fair_distance": ("Distance of tenants from their fair targets.", ()),
    "last_round_price_of_fairness": ("Part of what it could place that fairness kept out.", ()),
    "last_round_price": (
        "Amount of the first ranking resource that one more unit would have let it place; of the "
        "class of hosts where that is most.",
        ("resource",),
    ),
}


class FleetCollector(Collector):
    """Reads the register center for Prometheus, at most once in ``interval_s``."""

    def __init__(
        self,
        registry: Registry,
        *,
        interval_s: float,
        max_series: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._interval_s = interval_s
        self._max_series = max_series
        self._now = now
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._fleet: tuple[FleetCounts, Liveness] | None = None

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the metrics without reading the database."""
        return _new_families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics of the last read, at most one interval old."""
        with self._lock:
            if self._read_at is None or self._now() - self._read_at >= self._interval_s:
                self._fleet = self._read_registry()
                self._read_at = self._now()
            read = self._fleet
        found = _new_families()
        found["register_reachable"].add_metric((), 0.0 if read is None else 1.0)
        if read is not None:
            fleet, liveness = read
            _add_overdue_work(found, overdue_work(liveness))
            _add_clock(found, liveness)
            _add_work_counts(found, fleet)
            _add_moves(found, fleet.moves)
            _add_tenants(found, fleet, self._max_series)
            _add_borrowed(found, fleet, self._max_series)
            _add_budgets(found, fleet, self._max_series)
            _add_hosts(found, fleet, self._max_series)
            _add_rounds(found, fleet)
        return found.values()

    def _read_registry(self) -> tuple[FleetCounts, Liveness] | None:
        try:
            return self._registry.fleet(), self._registry.liveness()
        except Exception as error:  # the database is away: publish that
            log.warning("fleet_not_read", error=type(error).__name__)
            return None


def _new_families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(f"fuga_{name}", about, labels=labels)
        for name, (about, labels) in _FAMILIES.items()
    }


def _add_overdue_work(
    found: Mapping[str, GaugeMetricFamily], late: tuple[OverdueWork, ...]
) -> None:
    """Add for each kind of work whether no process does it, and how many are late."""
    for what in get_args(Work):
        of_it = [each for each in late if each.work == what]
        found["work_unattended"].add_metric((what,), float(any(each.unattended for each in of_it)))
        found["processes_late"].add_metric((what,), sum(not each.unattended for each in of_it))


def _add_clock(found: Mapping[str, GaugeMetricFamily], liveness: Liveness) -> None:
    step = liveness.clock_step
    found["clock_ahead_seconds"].add_metric((), liveness.clock_ahead_s)
    found["clock_stepped_back_seconds"].add_metric((), 0.0 if step is None else step.back_s)
    found["clock_stepped_ahead_seconds"].add_metric((), 0.0 if step is None else step.ahead_s)


def _add_work_counts(found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts) -> None:
    """Add the numbers of waiting VMs, requests, assignments, tasks and reservations."""
    for reason, number in sorted(fleet.waiting.items()):
        found["vms_waiting"].add_metric((reason,), number)
    for request_state in _OPEN_REQUESTS:
        found["requests"].add_metric((request_state,), fleet.requests.get(request_state, 0))
    for state in _HELD_STATES:
        found["assignments"].add_metric((state,), fleet.assignments.get(state, 0))
    for state in _TASK_STATES:
        found["task_age_seconds"].add_metric((state,), fleet.task_ages_s.get(state, 0.0))
    for reservation_state in OPEN_RESERVATIONS:
        number = fleet.reservations.get(reservation_state, 0)
        found["reservations"].add_metric((reservation_state,), number)
    found["reserved_vms_short"].add_metric((), fleet.reserved_short)
    found["leftovers"].add_metric((), fleet.leftovers)
    found["images_held"].add_metric((), fleet.images_held)
    found["strangers"].add_metric((), fleet.strangers)


def _add_moves(found: Mapping[str, GaugeMetricFamily], moves: FleetMoves) -> None:
    """Add moves by state, the oldest one's age, and how long guests stood still."""
    for state in OPEN_MOVES:
        found["moves"].add_metric((state,), moves.going_on.get(state, 0))
    for state in _ENDED_MOVES:
        found["moves_ended"].add_metric((state,), moves.ended.get(state, 0))
    found["move_age_seconds"].add_metric((), moves.oldest_s)
    found["move_standstill_seconds"].add_metric((), moves.standstill_s)
    found["move_standstill_max_seconds"].add_metric((), moves.longest_standstill_s)


def _add_tenants(
    found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts, max_series: int
) -> None:
    """Add the tenants with the largest shares; thousands of series would swamp Prometheus."""
    largest = sorted(tenant_shares(fleet.accounts), key=lambda each: -each.share)[:max_series]
    for each in largest:
        labels = (each.name, "group" if each.is_group else "tenant")
        found["dominant_share"].add_metric(labels, each.share)
        found["entitlement"].add_metric(labels, each.entitlement)
    names = {each.name for each in largest}
    for tenant in fleet.accounts.tenants:
        if tenant.name in names:
            found["tenant_vms"].add_metric((tenant.name,), tenant.vms)


def _add_borrowed(
    found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts, max_series: int
) -> None:
    """Add borrowed VMs, and what those tenants hold that have most of them."""
    ending = sum(each.ending for each in fleet.borrowed)
    found["borrowed_vms"].add_metric(("ending",), ending)
    kept = sum(each.vms for each in fleet.borrowed) - ending
    found["borrowed_vms"].add_metric(("kept",), kept)
    for each in sorted(fleet.borrowed, key=lambda each: -each.vms)[:max_series]:
        found["tenant_borrowed_vms"].add_metric((each.tenant,), each.vms)
        for resource, amount in each.amounts.items():
            found["tenant_borrowed"].add_metric((each.tenant, resource), amount)


def _add_budgets(
    found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts, max_series: int
) -> None:
    """Add budgets by state, and the figures of those of which the largest part is used."""
    states = Counter(each.state for each in fleet.budgets)
    for state in get_args(BudgetState):
        found["budgets"].add_metric((state,), states[state])
    if fleet.budgets:
        oldest = min(each.measured_at for each in fleet.budgets)
        age_s = max(0.0, (fleet.now - oldest).total_seconds())
        found["budget_age_seconds"].add_metric((), age_s)
    for each in sorted(fleet.budgets, key=_used_part, reverse=True)[:max_series]:
        labels = (each.tenant, each.resource)
        found["budget_limit"].add_metric(labels, float(each.amount))
        found["budget_used"].add_metric(labels, float(each.used))
        found["budget_used_per_hour"].add_metric(labels, float(each.per_hour))
        found["budget_spent"].add_metric(labels, float(each.state == "spent"))


def _used_part(budget: BudgetUse) -> float:
    return float(budget.used / budget.amount) if budget.amount else inf


def _add_hosts(found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts, max_series: int) -> None:
    """Add hosts by state and amounts by zone; of few hosts, also each host's."""
    states: dict[tuple[str, str], int] = {}
    amounts: dict[tuple[str, str], tuple[int, int]] = {}
    ages: dict[str, float] = {}
    one_by_one = len(fleet.hosts) <= max_series
    for host in fleet.hosts:
        state, zone = (host.admin, host.health), host.zone or ""
        states[state] = states.get(state, 0) + 1
        age_s = max(0.0, (fleet.now - host.heartbeat_at).total_seconds())
        if host.admin == HostAdmin.ACTIVE:
            ages[zone] = max(ages.get(zone, 0.0), age_s)
        for resource, (capacity, committed) in host.amounts.items():
            before = amounts.get((zone, resource), (0, 0))
            amounts[zone, resource] = (before[0] + capacity, before[1] + committed)
        if one_by_one:
            found["host_poll_age_seconds"].add_metric((host.name,), age_s)
            for resource, (capacity, committed) in host.amounts.items():
                found["host_capacity"].add_metric((host.name, resource), capacity)
                found["host_committed"].add_metric((host.name, resource), committed)
    for state, number in states.items():
        found["hosts"].add_metric(state, number)
    for (zone, resource), (capacity, committed) in amounts.items():
        found["capacity"].add_metric((zone, resource), capacity)
        found["committed"].add_metric((zone, resource), committed)
    for zone, age_s in ages.items():
        found["poll_age_max_seconds"].add_metric((zone,), age_s)
    for fence_state in _FENCE_STATES:
        found["fences"].add_metric((fence_state,), fleet.fences.get(fence_state, 0))
    found["hosts_in_backoff"].add_metric((), sum(host.held_back for host in fleet.hosts))
    found["hosts_over_capacity"].add_metric((), sum(map(_is_overcommitted, fleet.hosts)))


def _is_overcommitted(host: FleetHost) -> bool:
    return any(committed > capacity for capacity, committed in host.amounts.values())


def _add_rounds(found: Mapping[str, GaugeMetricFamily], fleet: FleetCounts) -> None:
    """Add the leader's lease, the pause, the ages of token and backup, and the last round."""
    if fleet.lease is not None:
        live = fleet.lease.expires_at > fleet.now
        found["lease_held"].add_metric((fleet.lease.holder,), float(live))
        found["lease_epoch"].add_metric((), fleet.lease.epoch)
    found["slot_loop_paused"].add_metric((), float(fleet.paused))
    if fleet.token_ends_in_s is not None:
        found["operator_token_ends_seconds"].add_metric((), fleet.token_ends_in_s)
    if fleet.backup_age_s is not None:
        found["backup_age_seconds"].add_metric((), fleet.backup_age_s)
    last = fleet.last_round
    if last is not None:
        age_s = max(0.0, (fleet.now - last.slot_start_at).total_seconds())
        found["last_round"].add_metric((), last.number)
        found["last_round_age_seconds"].add_metric((), age_s)
        found["last_round_placed"].add_metric((), last.placed)
        found["last_round_not_placed"].add_metric((), last.left_out)
        if last.fair_distance is not None:
            found["last_round_fair_distance"].add_metric((), last.fair_distance)
        _add_prices(found, last.prices)


def _add_prices(found: Mapping[str, GaugeMetricFamily], prices: Mapping[str, Any] | None) -> None:
    """Add the last round's price of fairness, and each resource's highest price."""
    if prices is None or prices["error"] is not None:
        return
    of_fairness = prices["of_fairness"] / prices["most"] if prices["most"] else 0.0
    found["last_round_price_of_fairness"].add_metric((), of_fairness)
    highest: dict[str, float] = {}
    for each in prices["classes"]:
        for resource, price in each["price"].items():
            highest[resource] = max(price, highest.get(resource, 0.0))
    for resource, price in highest.items():
        found["last_round_price"].add_metric((resource,), price)
