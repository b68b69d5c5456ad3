"""A stored round step by step: the order of play, and the combinations that each host weighed.

The policy's process computes the round again from its stored bytes (`game_view`), with the steps
that the policy records (`placement.fuga.round_steps`) and what they did to the tenants' shares.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from controller.rounds.inputs import RoundInputs, allocation_document, decode_inputs
from placement import Allocation, dominant_shares, fair_distance, target_shares
from placement.catalog.zone_policies import RoundPolicies
from placement.model.spot import ordinary_snapshot

#: The policy that reports its steps.
POLICY_WITH_STEPS: Final = "fuga"
#: Limits of an answer, a few MB: objects beyond those that steps name, and rows of all steps.
MAX_HOSTS, MAX_REQUESTS, MAX_TENANTS, MAX_ROWS = 300, 500, 100, 4_000
_COPIED_KEYS: Final = (
    *("kind", "game", "how", "players", "vms", "moves"),
    *("fairness", "skewness", "potential"),
)


def decide_in_steps(argument: tuple[bytes, int]) -> dict[str, Any]:
    """Decide encoded inputs again and record the steps, up to a maximum.

    Returns
    -------
    dict
        ``outcome``: the allocation as it is stored, without steps; ``game``: see `game_view`.
    """
    data, max_steps = argument
    inputs = decode_inputs(data)
    who = RoundPolicies(
        policy=inputs.policy,
        parameters=_parameters_with_steps(inputs.policy, inputs.parameters, max_steps),
        zones=tuple(
            dataclasses.replace(
                zone, parameters=_parameters_with_steps(zone.policy, zone.parameters, max_steps)
            )
            for zone in inputs.zones
        ),
    )
    allocation = inputs.decide_with(who)
    steps = allocation.details.get("steps", ())
    silent = dataclasses.replace(allocation, details=without_steps(allocation.details))
    return {
        "outcome": allocation_document(silent),
        "game": game_view(inputs, allocation, steps, max_steps),
    }


def without_steps(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a policy's decision without its steps."""
    view = {key: value for key, value in details.items() if key != "steps"}
    if "zones" in view:
        view["zones"] = {name: without_steps(each) for name, each in view["zones"].items()}
    if "passes" in view:
        view["passes"] = [without_steps(each) for each in view["passes"]]
    return view


def game_view(
    inputs: RoundInputs, allocation: Allocation, steps: Sequence[Mapping[str, Any]], max_steps: int
) -> dict[str, Any]:
    """Return a round's steps with hosts, requests and tenants by name, as the API shows them.

    The last step, of kind ``rest``, holds the steps that are not listed, and changes by rules
    outside the game. So all rows together always equal the round's placements.
    """
    snapshot, names = inputs.snapshot, inputs.names
    shown = list(steps[:max_steps])
    came: Counter[tuple[int, int]] = Counter()
    for step in shown:
        came.update({(q, h): count for q, h, count in step["rows"]})
    rest: Counter[tuple[int, int]] = Counter(
        {(q, h): count for q, h, count in allocation.placed.tolist()}
    )
    rest.subtract(came)
    rows = [[*pair, count] for pair, count in sorted(rest.items()) if count]
    if rows:
        shown.append({"kind": "rest", "rows": rows})
    view = _StepView(inputs, shown)
    return {
        "resources": list(snapshot.resources),
        "ranking": list(allocation.details.get("ranking", ())),
        "hosts": [
            {
                "name": names.hosts[index][1],
                "capacity": _amounts_by_resource(inputs, snapshot.capacity[index]),
                "free": _amounts_by_resource(inputs, snapshot.free[index]),
            }
            for index in view.hosts
        ],
        "hosts_left_out": len(snapshot.capacity) - len(view.hosts),
        "requests": [view.request_view(index) for index in view.requests],
        "requests_left_out": int(np.count_nonzero(snapshot.count)) - len(view.requests),
        "tenants": view.tenant_views(allocation),
        "tenants_left_out": view.tenants_left_out,
        "fair_distance": view.fair_distance,
        "steps": view.steps(),
        "steps_left_out": len(steps) - min(len(steps), max_steps),
    }


class _StepView:
    """Converts steps into views, and follows the tenants' shares from step to step."""

    def __init__(self, inputs: RoundInputs, steps: Sequence[Mapping[str, Any]]) -> None:
        self._inputs, self._snapshot = inputs, inputs.snapshot
        self._shown = steps
        snapshot = inputs.snapshot
        self._held = snapshot.held.copy()
        self._targets = target_shares(ordinary_snapshot(snapshot))
        self._before = dominant_shares(snapshot.held, snapshot.pool)
        self.fair_distance = fair_distance(self._before, self._targets)
        self._rows_of = self._rows_by_step()
        self.hosts = _hosts_to_show(self._listed_hosts(), len(snapshot.capacity), MAX_HOSTS)
        requests = {
            *np.flatnonzero(snapshot.count).tolist()[:MAX_REQUESTS],
            *(row[0] for rows in self._rows_of for row in rows),
            *(
                int(request)
                for step in steps
                for each in step.get("combinations", ())
                for request in each["counts"]
            ),
        }
        self.requests = sorted(requests)
        concerned = sorted({int(snapshot.tenant[request]) for request in self.requests})
        concerned += [t for t in np.flatnonzero(self._before).tolist() if t not in set(concerned)]
        self.tenants = sorted(concerned[:MAX_TENANTS])  # each round has them in one order
        self.tenants_left_out = len(snapshot.weight) - len(self.tenants)
        self._host_at = {index: place for place, index in enumerate(self.hosts)}
        self._request_at = {index: place for place, index in enumerate(self.requests)}
        self._tenant_at = {index: place for place, index in enumerate(self.tenants)}

    def _rows_by_step(self) -> list[list[list[int]]]:
        """Return the rows of each step, of request, host and count, as far as they are shown."""
        left, found = MAX_ROWS, []
        for step in self._shown:
            found.append(step["rows"][:left])
            left -= len(found[-1])
        return found

    def _listed_hosts(self) -> Iterable[int]:
        """Yield the hosts that the shown steps name."""
        for step, rows in zip(self._shown, self._rows_of, strict=True):
            if "host" in step:
                yield step["host"]
            if step["kind"] == "game":
                yield from step["hosts"][:MAX_HOSTS]
            yield from (row[1] for row in rows)

    def request_view(self, index: int) -> dict[str, Any]:
        """Return a request with its names, demand and count, as the API shows it."""
        key, name, vm_type = self._inputs.names.requests[index]
        borrowed = self._snapshot.borrowed
        return {
            "id": key,
            "name": name,
            "tenant": self._inputs.names.tenants[self._snapshot.tenant[index]][1],
            "vm_type": vm_type,
            "demand": _amounts_by_resource(self._inputs, self._snapshot.demand[index]),
            "count": int(self._snapshot.count[index]),
            "borrowed": borrowed is not None and bool(borrowed.asks[index]),
        }

    def tenant_views(self, allocation: Allocation) -> list[dict[str, Any]]:
        """Return the shown tenants' shares before and after the round, with their fair share."""
        held = self._snapshot.after_placing(allocation.placed).held
        after = dominant_shares(held, self._snapshot.pool)
        return [
            {
                "name": self._inputs.names.tenants[index][1],
                "before": float(self._before[index]),
                "after": float(after[index]),
                "target": float(self._targets[index]),
            }
            for index in self.tenants
        ]

    def steps(self) -> list[dict[str, Any]]:
        """Return the steps, each with its changed shares and the fair distance after it."""
        shares = self._before.copy()
        return [
            self._step_document(step, rows, shares)
            for step, rows in zip(self._shown, self._rows_of, strict=True)
        ]

    def _step_document(
        self, step: Mapping[str, Any], rows: Sequence[Sequence[int]], shares: Any
    ) -> dict[str, Any]:
        """Return a step as the API shows it; apply its rows to the tenants' shares."""
        snapshot = self._snapshot
        changed = set()
        for request, _, count in step["rows"]:
            if snapshot.spot is not None and snapshot.spot.asks[request]:
                continue  # in no share
            tenant = int(snapshot.tenant[request])
            self._held[tenant] += count * snapshot.demand[request]
            changed.add(tenant)
        several = sorted(changed)
        shares[several] = dominant_shares(self._held[several], snapshot.pool)
        view: dict[str, Any] = {key: step[key] for key in _COPIED_KEYS if key in step}
        if "host" in step:
            view["host"] = self._host_at[step["host"]]
        if "hosts" in step:
            view["order"] = [self._host_at[each] for each in step["hosts"] if each in self._host_at]
        if "combinations" in step:
            view["combinations"] = [
                {
                    "vms": [
                        {"request": self._request_at[int(request)], "count": count}
                        for request, count in each["counts"].items()
                    ],
                    **{key: each[key] for key in ("utility", "fairness", "skewness", "chosen")},
                    "minimum_utilization": each["minimum_utilization"],
                }
                for each in step["combinations"]
            ]
        return view | {
            "rows": [
                {"request": self._request_at[request], "host": self._host_at[host], "count": count}
                for request, host, count in rows
            ],
            "rows_left_out": len(step["rows"]) - len(rows),
            "shares": [
                {"tenant": self._tenant_at[each], "share": float(shares[each])}
                for each in several
                if each in self._tenant_at
            ],
            "fair_distance": fair_distance(shares, self._targets),
        }


def _parameters_with_steps(
    policy: str, parameters: Mapping[str, Any], max_steps: int
) -> Mapping[str, Any]:
    return {**parameters, "steps": max_steps} if policy == POLICY_WITH_STEPS else parameters


def _amounts_by_resource(inputs: RoundInputs, row: Any) -> dict[str, int]:
    return {name: int(row[r]) for r, name in enumerate(inputs.snapshot.resources)}


def _hosts_to_show(hosts_listed: Iterable[int], hosts: int, max_hosts: int) -> list[int]:
    """Return the hosts that steps name, and others up to ``max_hosts``."""
    found = list(dict.fromkeys(hosts_listed))
    known = set(found)
    others = (index for index in range(hosts) if index not in known)
    return found + list(islice(others, max(0, max_hosts - len(found))))
