"""From a policy's `Allocation` to the answer object of `fuga solve`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from placement.fairness.shares import dominant_shares
from placement.model.snapshot import Allocation
from placement.solve.problem import WholeVmProblem
from placement.solve.problem.tenant_trees import sums_over_groups

#: The most hosts that the answer lists one by one by default.
FEW_HOSTS: Final = 64


def whole_vm_answer(
    policy: str,
    whole: WholeVmProblem,
    allocation: Allocation,
    *,
    seconds: float,
    details: bool = False,
) -> dict[str, Any]:
    """Return the answer of `fuga solve` by a policy, as JSON values.

    Parameters
    ----------
    policy : str
        The name under which the catalogue has it.
    whole : WholeVmProblem
        What the policy decided on.
    allocation : Allocation
        What it decided; feasible.
    seconds : float
        Spent inside the policy.
    details : bool
        List each host even where there are more than `FEW_HOSTS`.

    Returns
    -------
    dict
        ``tasks`` are totals over a class of hosts. ``tenants[].dominant_share``
        is unweighted, of the pool's capacity, from this answer and ``held``; a
        group's is that of all tenants below it together.
        ``utilization`` is the part of the pool that is in use after this
        answer: ``(capacity - free + placed) / capacity``, 0 for a resource that
        no host offers. ``left_out`` has finite counts only.
    """
    snapshot, problem = whole.snapshot, whole.problem
    after = snapshot.after_placing(allocation.placed)
    holds = sums_over_groups(problem, whole.tenants, after.held)
    shares = dominant_shares(holds, snapshot.pool)
    in_use = (snapshot.capacity - after.free).sum(axis=0)
    placed_of = np.zeros(len(whole.tenants), dtype=np.int64)
    np.add.at(placed_of, snapshot.tenant, snapshot.count - after.count)
    placed_of = sums_over_groups(problem, whole.tenants, placed_of)
    return {
        "policy": policy,
        "divisible": False,
        "tasks": _placed_tasks(whole, allocation),
        "tenants": [
            {"name": tenant.name, "tasks": int(tasks), "dominant_share": float(share)}
            for tenant, tasks, share in zip(problem.tenants, placed_of, shares, strict=True)
        ],
        "utilization": {
            name: float(taken / offered) if offered else 0.0
            for name, taken, offered in zip(problem.resources, in_use, snapshot.pool, strict=True)
        },
        "left_out": [
            {
                "demand": problem.demands[each.request].name,
                "count": each.count,
                "reason": each.reason.value,
            }
            for each in sorted(allocation.left_out, key=lambda each: each.request)
            if problem.demands[each.request].count is not None and each.count > 0
        ],
        "seconds": seconds,
        "details": {
            "work": allocation.work,
            "cut": allocation.cut,
            **named_details(
                allocation.details, _AllocationNaming(whole), len(whole.entry), every_host=details
            ),
        },
    }


def _placed_tasks(whole: WholeVmProblem, allocation: Allocation) -> list[dict[str, Any]]:
    """Return the placed VMs by demand and host entry of the problem file."""
    problem = whole.problem
    totals: dict[tuple[int, int], int] = {}
    for request, host, count in allocation.placed.tolist():
        key = (request, int(whole.entry[host]))
        totals[key] = totals.get(key, 0) + count
    return [
        {"demand": problem.demands[request].name, "host": problem.hosts[entry].name, "tasks": count}
        for (request, entry), count in sorted(totals.items())
        if count > 0
    ]


# -------------------------------------------------------------------- details

#: Parts of `Allocation.details` that list single hosts.
_PER_HOST: Final = ("order", "strategies", "utilities", "weighed", "phase", "gangs")


class DetailNaming(Protocol):
    """Replaces indices of hosts, tenants and demands in details by names."""

    def names_hosts(self, key: str, value: Any) -> bool:
        """Return whether a detail has an entry for each single host."""
        ...

    def with_names(self, key: str, value: Any) -> Any:
        """Return a detail with the problem file's names in place of indices."""
        ...


def named_details(
    details: Mapping[str, Any], naming: DetailNaming, hosts: int, *, every_host: bool
) -> dict[str, Any]:
    """Return the details of an answer as JSON values, with names in place of indices.

    Unless ``every_host``, nothing is listed for each of more than `FEW_HOSTS` ``hosts``,
    and ``omitted`` lists what is left out.
    """
    few = every_host or hosts <= FEW_HOSTS
    omitted = sorted(key for key in details if not few and naming.names_hosts(key, details[key]))
    named = {
        key: replace_nonfinite(naming.with_names(key, value))
        for key, value in details.items()
        if key not in omitted
    }
    return {**named, "omitted": omitted} if omitted else named


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: replace_nonfinite(each) for key, each in value.items()}
        case list() | tuple():
            return [replace_nonfinite(each) for each in value]
        case _:
            return value


class _AllocationNaming:
    """Replaces indices of hosts and requests in an allocation's details by names."""

    def __init__(self, whole: WholeVmProblem) -> None:
        self._hosts = whole.host_names()
        self._demands = [demand.name for demand in whole.problem.demands]
        self._tenants = [whole.problem.tenants[index].name for index in whole.tenants]
        self._by_key: Mapping[str, Callable[[Any], Any]] = {
            "order": self._name_order,
            "strategies": self._name_by_host,
            "utilities": self._name_by_host,
            "weighed": self._name_weighed,
            "phase": self._name_phase,
            "gangs": self._name_gangs,
            "games": self._name_games,
            "targets": self._name_targets,
            "tenant_weights": self._name_by_tenant,
        }

    def names_hosts(self, key: str, value: Any) -> bool:
        """Return whether a detail of an allocation has an entry for each host."""
        return key in _PER_HOST

    def with_names(self, key: str, value: Any) -> Any:
        """Return a detail of an allocation with names in place of indices."""
        return self._by_key[key](value) if key in self._by_key else value

    def _name_order(self, hosts: Sequence[int]) -> list[str]:
        """Name the hosts of the order of play."""
        return [self._hosts[host] for host in hosts]

    def _name_by_host(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Name the hosts that are the keys of a detail."""
        return {self._hosts[int(host)]: value for host, value in values.items()}

    def _name_weighed(
        self, combinations: Mapping[Any, Sequence[Mapping[str, Any]]]
    ) -> dict[str, Any]:
        """Name the requests in each host's weighed combinations and in what the others took."""
        return {
            self._hosts[int(host)]: [
                {
                    key: self._name_counts(value) if key in ("counts", "others") else value
                    for key, value in each.items()
                }
                for each in weighed
            ]
            for host, weighed in combinations.items()
        }

    def _name_phase(self, rows: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """Name requests and hosts of the VMs that games and later steps placed."""
        return [
            {
                "demand": self._demands[request],
                "host": self._hosts[host],
                "game": game,
                "remainder": remainder,
            }
            for request, host, game, remainder in rows
        ]

    def _name_gangs(self, rows: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """Name requests and hosts of the gangs placed before the games."""
        return [
            {"demand": self._demands[request], "host": self._hosts[host], "vms": vms}
            for request, host, vms in rows
        ]

    def _name_games(self, games: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Name the requests that got VMs in each game."""
        return [{**game, "handed_out": self._name_counts(game["handed_out"])} for game in games]

    def _name_targets(self, targets: Sequence[float]) -> dict[str, float]:
        """Name the requests of fair targets."""
        return dict(zip(self._demands, targets, strict=True))

    def _name_by_tenant(self, values: Sequence[Any]) -> dict[str, Any]:
        """Name the tenants of a detail with one value for each."""
        return dict(zip(self._tenants, values, strict=True))

    def _name_counts(self, counts: Mapping[Any, int]) -> dict[str, int]:
        """Name the requests that are the keys of counts of VMs."""
        return {self._demands[int(request)]: count for request, count in counts.items()}
