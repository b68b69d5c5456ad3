"""What fuga claims of a stored round, checked by code that shares nothing with it.

Reads the raw documents of a round (inputs, outcome, waiting) in plain Python:
no numpy, nothing from `placement`.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from placement.constraints.starving_requests import PATIENCE


@dataclass(frozen=True)
class StoredRound:
    """A round as the register center keeps it."""

    inputs: dict[str, Any]
    outcome: dict[str, Any]

    @classmethod
    def read(cls, inputs: bytes, packed_outcome: bytes) -> StoredRound:
        return cls(*(json.loads(zlib.decompress(each)) for each in (inputs, packed_outcome)))

    @property
    def snapshot(self) -> dict[str, Any]:
        return self.inputs["snapshot"]

    @property
    def resources(self) -> int:
        return len(self.snapshot["resources"])

    def pool(self) -> list[int]:
        return [sum(host[r] for host in self.snapshot["capacity"]) for r in range(self.resources)]

    def placed(self) -> dict[tuple[int, int], int]:
        return {(q, h): n for q, h, n in self.outcome["placed"]}

    def left_out(self) -> dict[int, int]:
        left: dict[int, int] = {}
        for q, n, _ in self.outcome["left_out"]:
            left[q] = left.get(q, 0) + n
        return left

    def may_use(self, q: int, h: int) -> bool:
        return bool(self.snapshot["eligible"][q][self.snapshot["host_class"][h]])

    def kept_out(self, q: int, h: int) -> bool:
        """Is the host held back for a request of another kind?"""
        holders = [
            holder for holder, host in self.outcome["details"].get("holding", ()) if host == h
        ]
        if not holders or q in holders:
            return False
        held_for = [holder for holder, _ in self.outcome["details"]["holding"]]
        alike = (self.snapshot["demand"][q], self.snapshot["eligible"][q])
        (holder,) = holders
        return (
            q not in held_for
            or max(self.at_once(q), self.at_once(holder)) > 1
            or alike != (self.snapshot["demand"][holder], self.snapshot["eligible"][holder])
        )

    def given(self, q: int) -> int:
        return sum(n for (each, _), n in self.placed().items() if each == q)

    def at_once(self, q: int) -> int:
        """VMs that a gang takes at once, or none; 0 for who takes any number."""
        least = self.snapshot["min_count"][q]
        return least if least > 1 else 0

    def free_after(self) -> list[list[int]]:
        free = [list(host) for host in self.snapshot["free"]]
        for (q, h), n in self.placed().items():
            for r, amount in enumerate(self.snapshot["demand"][q]):
                free[h][r] -= n * amount
        return free

    def share(self, held: list[int]) -> float:
        return max((held[r] / size for r, size in enumerate(self.pool()) if size), default=0.0)

    def held_after(self) -> list[list[int]]:
        held = [list(row) for row in self.snapshot["held"]]
        for (q, _), n in self.placed().items():
            for r, amount in enumerate(self.snapshot["demand"][q]):
                held[self.snapshot["tenant"][q]][r] += n * amount
        return held


def unfair_exchanges(stored: StoredRound) -> list[str]:
    """Name every exchange that would have been fairer; empty when the claim holds.

    The claim: where one tenant ends richer than another by more than one VM's
    share, the richer one's VMs could not have been the poorer one's. So there
    is no host on which taking away VMs that this round gave to the richer one
    makes room for one VM that the poorer one still wants, such that the poorer
    one afterwards is not above what the richer one keeps. A gang is not taken
    below what it asked for at once, and not begun with less.
    """
    snapshot, free, held = stored.snapshot, stored.free_after(), stored.held_after()
    found = []
    for poor_q in stored.left_out():
        if stored.at_once(poor_q) and not stored.given(poor_q):
            continue
        poor = snapshot["tenant"][poor_q]
        need = snapshot["demand"][poor_q]
        for (rich_q, h), given in stored.placed().items():
            rich = snapshot["tenant"][rich_q]
            gap = _level(stored, held, rich) - _level(stored, held, poor)
            one_vm = max(_vm_share(stored, rich_q), _vm_share(stored, poor_q))
            if rich == poor or gap <= one_vm + 1e-9 or not stored.may_use(poor_q, h):
                continue
            if stored.kept_out(poor_q, h):
                continue
            back = snapshot["demand"][rich_q]
            taken = next(
                (
                    k
                    for k in range(min(given, stored.given(rich_q) - stored.at_once(rich_q)) + 1)
                    if all(free[h][r] + k * back[r] >= need[r] for r in range(stored.resources))
                ),
                None,
            )
            if taken is None:
                continue
            after = [list(row) for row in held]
            for r in range(stored.resources):
                after[rich][r] -= taken * back[r]
                after[poor][r] += need[r]
            if _level(stored, after, poor) <= _level(stored, after, rich) + 1e-9:
                found.append(
                    f"on host {h} {taken} VMs of request {rich_q} could have been one of {poor_q}"
                )
    return found


def _level(stored: StoredRound, held: list[list[int]], tenant: int) -> float:
    return stored.share(held[tenant]) / stored.snapshot["weight"][tenant]


def _vm_share(stored: StoredRound, q: int) -> float:
    weight = stored.snapshot["weight"][stored.snapshot["tenant"][q]]
    return stored.share(stored.snapshot["demand"][q]) / weight


def wrong_shortages(stored: StoredRound, q: int, told: list[dict[str, Any]]) -> list[str]:
    """Compare what an explanation says is short with the snapshot; empty when it is right."""
    snapshot, free = stored.snapshot, stored.free_after()
    names = [name for _, name in stored.inputs["names"]["hosts"]]
    hosts = [h for h in range(len(names)) if stored.may_use(q, h)]
    wrong = []
    for each in told:
        r = snapshot["resources"].index(each["resource"])
        lacks = {h: snapshot["demand"][q][r] - free[h][r] for h in hosts}
        short = {h: lack for h, lack in lacks.items() if lack > 0}
        expected = (len(short), len(hosts), min(short.values(), default=0))
        found = (each["hosts_short"], each["hosts"], each["missing"])
        if found != expected:
            wrong.append(f"{each['resource']}: told {found}, the snapshot says {expected}")
        elif (
            each["nearest_host"] is not None
            and short[names.index(each["nearest_host"])] != found[2]
        ):
            wrong.append(f"{each['resource']}: {each['nearest_host']} is not the nearest")
    told_names = {each["resource"] for each in told}
    for r, name in enumerate(snapshot["resources"]):
        if name not in told_names and any(snapshot["demand"][q][r] > free[h][r] for h in hosts):
            wrong.append(f"{name} is short on a host, and not told")
    return wrong


def wrong_holding(stored: StoredRound, patience: int = PATIENCE, part: float = 0.1) -> list[str]:
    """Name what is wrong with the hosts held back; empty when the claims hold.

    Held are no more of the open hosts than `_most_held` says, each for one
    request that has waited long enough, a gang a slot, and where nobody else was placed.
    HELD_BACK is told of those only whom held hosts still have room for.
    """
    rows = stored.outcome["details"].get("holding", [])
    hosts = [h for _, h in rows]
    requests = range(len(stored.snapshot["count"]))
    open_hosts = [
        h
        for h in range(len(stored.snapshot["free"]))
        if any(stored.may_use(q, h) for q in requests)
    ]
    wrong = []
    most = _most_held(stored, rows, len(open_hosts), patience, part)
    if len(hosts) != len(set(hosts)) or len(hosts) > most:
        wrong.append(f"too many hosts are held: {rows}")
    wrong += [
        f"host {h} is held for {q}"
        for q, h in rows
        if stored.snapshot["age"][q] < (1 if stored.snapshot["min_count"][q] > 1 else patience)
        or not stored.may_use(q, h)
    ]
    wrong += [
        f"request {q} was placed on host {h}, which is held from it"
        for q, h in stored.placed()
        if stored.kept_out(q, h)
    ]
    free = stored.free_after()
    for q, n, reason in stored.outcome["left_out"]:
        if reason != "held_back":
            continue
        mine = [h for h in range(len(free)) if stored.may_use(q, h)]
        kept = [h for h in mine if stored.kept_out(q, h)]
        begun = stored.given(q) or not stored.at_once(q)
        if _fit(stored, q, kept) < 1 or _fit(stored, q, kept if begun else mine) < n:
            wrong.append(f"{n} VMs of request {q} would not have fitted on held hosts")
        if not begun and n < stored.at_once(q):
            wrong.append(f"the gang {q} would not have been whole on held hosts")
    return wrong


def _most_held(
    stored: StoredRound, rows: list[list[int]], open_hosts: int, patience: int, part: float
) -> int:
    """A part of the open hosts, one at least; more where one gang alone, or due gangs have some."""
    most = max(1, int(open_hosts * part))
    holders = {q for q, _ in rows}
    if any(stored.snapshot["min_count"][q] > 1 for q in holders):
        most = max(most, min(4, open_hosts // 2), int(open_hosts * 0.1))
    if len(holders) != 1:
        return most
    times = stored.snapshot["age"][holders.pop()] // patience
    larger = 1.0 if times >= 64 else 0.5 if times >= 8 else 0.1
    return max(most, min(4, open_hosts // 2), int(open_hosts * larger))


def _fit(stored: StoredRound, q: int, hosts: list[int]) -> int:
    need = stored.snapshot["demand"][q]
    free = stored.free_after()
    return sum(min(free[h][r] // need[r] for r in range(len(need)) if need[r]) for h in hosts)


def overfull_hosts(stored: StoredRound) -> list[int]:
    """Hosts on which the outcome does not fit."""
    return [h for h, free in enumerate(stored.free_after()) if min(free) < 0]


def wrong_utilities(stored: StoredRound) -> list[str]:
    """Compute again what hosts weighed in the game; name every number that differs.

    FUGA's utility in plain Python: U(m) = v(A) - ske(m), with
    v(A) = -(sum over requests i and resources j of
    |phi_i,j / T_j - target_i,j|^(alpha-1))^(1/alpha), and ske(m) the distance of
    the host's utilizations of the ranking resources from their mean.
    """
    details, parameters = stored.outcome["details"], stored.inputs["parameters"]
    alpha = parameters.get("alpha", 2.0)
    ranking = [stored.snapshot["resources"].index(name) for name in details["ranking"]]
    wrong = []
    for host, combinations in details.get("weighed", {}).items():
        chosen = [each for each in combinations if each["chosen"]]
        if len(chosen) != 1:
            wrong.append(f"host {host}: {len(chosen)} combinations are chosen")
            continue
        begun = [{q: n} for q, _, n in details["gangs"]]
        before = _added(_handed_out_before(details["games"], chosen[0]["game"]), *begun)
        for each in combinations:
            took = {int(q): n for q, n in each["counts"].items()}
            shown = {key: each[key] for key in ("utility", "minimum_utilization")}
            skewness, minimum = _of_host(stored, int(host), took, ranking)
            expected = {"utility": each["fairness"] - skewness, "minimum_utilization": minimum}
            if "others" in each:
                tasks = _added(before, {int(q): n for q, n in each["others"].items()}, took)
                expected["utility"] = _fairness(stored, tasks, alpha) - skewness
            # A distance of nothing may be told as a rounding of 1e-16, or here be
            # one, and a power below 1 lifts that: so much may each term differ.
            # Sums are compared, not their alpha-th roots, which lift it again.
            terms = stored.resources * len(stored.snapshot["count"])
            rounding = terms * (1e-15 ** min(1.0, alpha - 1))
            away = [abs(skewness + numbers["utility"]) ** alpha for numbers in (shown, expected)]
            misses = {
                "utility": away[0] - away[1],
                "minimum_utilization": shown["minimum_utilization"] - minimum,
            }
            wrong += [
                f"host {host}, {each['counts']}: {key} is told as {shown[key]}, is {expected[key]}"
                for key, miss in misses.items()
                if abs(miss) > rounding
            ]
        best = max(each["utility"] for each in combinations)
        if chosen[0]["utility"] < best - 1e-9:
            wrong.append(f"host {host} did not choose its best combination")
    return wrong


def _handed_out_before(games: list[dict[str, Any]], number: int) -> dict[int, int]:
    return _added(
        *({int(q): n for q, n in each["handed_out"].items()} for each in games[: number - 1])
    )


def _added(*counts: dict[int, int]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in counts:
        for q, n in each.items():
            total[q] = total.get(q, 0) + n
    return total


def _of_host(
    stored: StoredRound, h: int, took: dict[int, int], ranking: list[int]
) -> tuple[float, float]:
    """Skewness and minimum utilization of one combination on a host."""
    demand = stored.snapshot["demand"]
    capacity, free = stored.snapshot["capacity"][h], list(stored.snapshot["free"][h])
    for q, host, n in stored.outcome["details"]["gangs"]:
        if host == h:  # placed before the game
            free = [left - n * amount for left, amount in zip(free, demand[q], strict=True)]
    chosen = [sum(n * demand[q][r] for q, n in took.items()) for r in range(stored.resources)]
    use = [(capacity[r] - free[r] + chosen[r]) / capacity[r] for r in ranking]
    mean = sum(use) / len(use)
    skewness = sum((each / mean - 1) ** 2 for each in use) ** 0.5 if mean else 0.0
    return skewness, min(chosen[r] / free[r] for r in ranking)


def _fairness(stored: StoredRound, tasks: dict[int, int], alpha: float) -> float:
    pool, demand = stored.pool(), stored.snapshot["demand"]
    total = 0.0
    for q, target in enumerate(stored.outcome["details"]["targets"]):
        for r in range(stored.resources):
            if pool[r]:
                share = demand[q][r] / pool[r]
                total += abs(tasks.get(q, 0) * share - target * share) ** (alpha - 1)
    return -(total ** (1 / alpha))
