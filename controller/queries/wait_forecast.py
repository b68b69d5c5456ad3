"""Forecasts waiting times by simulating future rounds, in the policies' child process."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import numpy as np

from controller.rounds.inputs import RoundInputs, decode_inputs
from controller.rounds.snapshots import drop_spot_requests, to_snapshot
from placement import FloatArray, IntArray, Policy
from placement.catalog.zone_policies import ELSEWHERE, NamedPolicy, RoundPolicies, build_zone_inputs
from placement.forecast.current_state import CurrentState, RecentArrivals, RunningVms
from placement.forecast.estimate import WaitEstimate, estimate_wait
from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from placement.forecast.run_ahead import RunAheadOptions, simulate_waits
from registry.requests import zone_of
from registry.rounds import ClusterView, ForecastInputs

HORIZON_S: Final = 7 * 86_400.0
SAMPLES: Final = 40
#: Policies whose decisions do not depend on hosts without room; other policies see every host.
_NARROW: Final = frozenset(
    {"fuga", "best_fit_drfh", "best_fit_hdrf", "first_fit_drfh", "first_fit", "best_fit"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastQuery:
    """Inputs of a forecast in the policies' child process."""

    view: ForecastInputs
    time_s: float  #: for all samples together
    horizon_s: float = HORIZON_S
    samples: int = SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Estimated waiting times, the answer to a `ForecastQuery`."""

    of: Mapping[UUID, WaitEstimate]  #: by request; empty if there were too few samples
    samples: int
    horizon_s: float
    seconds: float  #: of all samples


def estimate_waits(question: ForecastQuery) -> Estimates:
    """Estimate waiting times by simulating future rounds with the policy of the latest round.

    Equal views give equal samples; only their number depends on the time taken.
    """
    view = question.view
    assert view.inputs is not None  # noqa: S101 the caller has checked
    assert view.slot_length_s is not None  # noqa: S101 the same
    inputs = decode_inputs(view.inputs)
    present, rows_of_request = forecast_start(view)
    ahead = RunAheadOptions(
        policy=_zone_policies(view.cluster, inputs),
        slot_length_s=view.slot_length_s,
        budget_units=inputs.budget_units,
        horizon_s=question.horizon_s,
        samples=question.samples,
        seed=inputs.seed,
        whole=not {inputs.policy, *(zone.policy for zone in inputs.zones)} <= _NARROW,
    )
    began = time.monotonic()
    waits_s = simulate_waits(
        present, build_lifetimes(view), ahead, lambda: time.monotonic() - began > question.time_s
    )
    found = {}
    for request, rows in rows_of_request.items():
        estimate = estimate_wait(
            waits_s[:, rows].max(axis=1),
            slot_length_s=view.slot_length_s,
            horizon_s=question.horizon_s,
        )
        if estimate is not None:
            found[request] = estimate
    return Estimates(
        of=found,
        samples=len(waits_s),
        horizon_s=question.horizon_s,
        seconds=time.monotonic() - began,
    )


def forecast_start(view: ForecastInputs) -> tuple[CurrentState, Mapping[UUID, Sequence[int]]]:
    """Return the state from which a forecast starts.

    Also returns the rows that each waiting request has in its snapshot.
    """
    cluster = drop_spot_requests(view.cluster)
    tenant_index = {tenant.id: index for index, tenant in enumerate(cluster.tenants)}
    host_index = {host.id: index for index, host in enumerate(cluster.hosts)}
    kinds = [kind for kind in view.kinds if kind.tenant_id in tenant_index]
    place = {id(kind): index for index, kind in enumerate(kinds)}
    row_of_kind = [place.get(id(kind), -1) for kind in view.kinds]
    waiting = len(cluster.requests)
    both = dataclasses.replace(cluster, requests=(*cluster.requests, *kinds))
    snapshot, _ = to_snapshot(both)
    count = snapshot.count.copy()
    count[waiting:] = 0
    groups = _LifetimeGroups(view)
    living = [
        each
        for each in view.living
        if each.host_id in host_index and each.tenant_id in tenant_index
    ]
    numbers: dict[UUID, int] = {}
    came = [each for each in view.came if row_of_kind[each.kind] >= 0]
    rows_of_request: defaultdict[UUID, list[int]] = defaultdict(list)
    for row, request in enumerate(cluster.requests):
        rows_of_request[request.id].append(row)
    present = CurrentState(
        snapshot=dataclasses.replace(snapshot, count=count),
        groups=groups.rows([(each.tenant_id, each.vm_type) for each in both.requests]),
        ends_in_s=np.concatenate(
            [
                _seconds_until((view.ends.get(each.id) for each in cluster.requests), cluster.now),
                # Lifetimes of future VMs are drawn from those observed.
                np.full(len(kinds), np.inf),
            ]
        ),
        running=RunningVms(
            host=_int_array(host_index[each.host_id] for each in living),
            tenant=_int_array(tenant_index[each.tenant_id] for each in living),
            request=_int_array(
                numbers.setdefault(each.request_id, len(numbers)) for each in living
            ),
            count=_int_array(each.count for each in living),
            demand=_int_array(view.demand[each.vm_type_id] for each in living).reshape(
                len(living), len(cluster.resources)
            ),
            groups=groups.rows(
                [(each.tenant_id, view.vm_types[each.vm_type_id]) for each in living]
            ),
            age_s=np.array(
                [max(0.0, (cluster.now - each.placed_at).total_seconds()) for each in living],
                dtype=np.float64,
            ),
            ends_in_s=_seconds_until((each.ends_at for each in living), cluster.now),
        ),
        arrivals=RecentArrivals(
            at_s=np.array(
                [(each.requested_at - view.came_since).total_seconds() for each in came],
                dtype=np.float64,
            ),
            row=_int_array(waiting + row_of_kind[each.kind] for each in came),
            count=_int_array(each.count for each in came),
            span_s=(cluster.now - view.came_since).total_seconds(),
        ),
    )
    return present, rows_of_request


def build_lifetimes(view: ForecastInputs) -> Lifetimes:
    """Return the lifetimes of VMs that were observed, for drawing those of running VMs."""
    lives = view.lives
    return Lifetimes(
        ObservedLifetimes(
            groups=_LifetimeGroups(view).rows(
                [(each.tenant_id, view.vm_types[each.vm_type_id]) for each in lives]
            ),
            age_s=np.array([each.lived_s for each in lives], dtype=np.float64),
            ended=np.array([each.ended for each in lives], dtype=np.bool_),
        )
    )


class _LifetimeGroups:
    """Numbers the groups of VMs with similar lifetimes: tenant and type, type, tenant."""

    def __init__(self, view: ForecastInputs) -> None:
        self._types = {name: at for at, name in enumerate(sorted(set(view.vm_types.values())))}
        # Includes deleted tenants, whose VMs ended.
        tenants = {each.tenant_id for each in view.lives}
        tenants |= {each.id for each in view.cluster.tenants}
        self._tenants = {tenant: at for at, tenant in enumerate(sorted(tenants))}

    def rows(self, of: Sequence[tuple[UUID, str]]) -> IntArray:
        """Return the three groups of each VM, shape (V, 3), the smallest group first."""
        tenant = _int_array(self._tenants[tenant] for tenant, _ in of)
        vm_type = _int_array(self._types[name] for _, name in of)
        both = tenant * len(self._types) + vm_type
        return np.column_stack([both, vm_type, tenant]).reshape(len(of), 3)


def _zone_policies(cluster: ClusterView, inputs: RoundInputs) -> _SubsetPolicies:
    """Return the maker of policies for subsets of hosts, as in the latest round."""
    return _SubsetPolicies(
        policy=NamedPolicy(policy=inputs.policy, parameters=inputs.parameters),
        zones={
            zone.name: NamedPolicy(policy=zone.policy, parameters=zone.parameters)
            for zone in inputs.zones
            if zone.name != ELSEWHERE
        },
        zone_of_host=[zone_of(host.labels) for host in cluster.hosts],
    )


class _SubsetPolicies:
    """Makes the policy that decides on a subset of hosts."""

    def __init__(
        self,
        policy: NamedPolicy,
        zones: Mapping[str, NamedPolicy],
        zone_of_host: Sequence[str | None],
    ) -> None:
        self._policy, self._zones, self._zone_of_host = policy, zones, zone_of_host
        self._same: Policy | None = None  # for all hosts, if no zone has a policy

    def __call__(self, hosts: IntArray) -> Policy:
        if self._same is not None:
            return self._same
        zones = [self._zone_of_host[host] for host in hosts.tolist()]
        made = RoundPolicies(
            policy=self._policy.policy,
            parameters=self._policy.parameters,
            zones=build_zone_inputs(zones, self._zones, self._policy),
        ).make_policy()
        if not self._zones:
            self._same = made
        return made


def _seconds_until(times: Iterable[datetime | None], now: datetime) -> FloatArray:
    """Return the seconds until each time, at least 0; infinity for None."""
    return np.array(
        [np.inf if at is None else max(0.0, (at - now).total_seconds()) for at in times],
        dtype=np.float64,
    )


def _int_array(values: object) -> IntArray:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
