"""One round: everything it does to the world, in order."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import structlog

from controller.errors import PolicyFailedError, SlotSkippedError
from controller.rounds.inputs import (
    Kept,
    RoundInputs,
    SpareInputs,
    allocation_of,
    games_of,
    packed,
)
from controller.rounds.interfaces import (
    FALLBACK_TIME_S,
    PolicyChoice,
    RoundDecider,
    RoundReport,
    RoundStore,
    RunningStore,
    Slot,
)
from controller.rounds.policy_process import Ideal
from controller.rounds.reserved import SettledReservations, settle_reservations
from controller.rounds.running import to_running
from controller.rounds.snapshots import SnapshotNames, freed_rows, to_snapshot
from controller.rounds.spare_domains import domains_of
from controller.rounds.waiting import waiting_requests
from placement import (
    Allocation,
    InfeasibleAllocationError,
    Snapshot,
    dominant_shares,
    fair_distance,
    fractions_of_pool,
    shares_in_tree,
)
from placement.catalog.zone_policies import (
    Deciding,
    NamedPolicy,
    ZoneInputs,
    first_feasible,
    zones_of,
)
from registry.moves import RunningView
from registry.requests import zone_of
from registry.rounds import (
    ClusterView,
    KeptRoom,
    LatestRound,
    Lease,
    Placement,
    RoundCommit,
    SpotCommit,
    SpotEnd,
)
from service.version import engine_version

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Decided:
    """A feasible allocation, and who found it."""

    inputs: RoundInputs
    data: bytes
    document: dict[str, Any]
    allocation: Allocation
    fallback_reason: str | None
    seconds: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _RoundView:
    """The cluster as the round read it."""

    snapshot: Snapshot
    names: SnapshotNames
    freed: tuple[tuple[int, int], ...]
    spare: SpareInputs | None
    reserved: SettledReservations | None = None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Search for no cycles of objects in this block, in any thread.

    A round makes hundreds of thousands of objects that live until it is over. Python
    takes that for a reason to look through all of them again and again, which costs a
    round of a large cluster more than its read; what it would find waits a few seconds.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@undisturbed()
def run_round(
    slot: Slot,
    lease: Lease,
    choice: PolicyChoice,
    *,
    store: RoundStore,
    decider: RoundDecider,
    running: RunningStore | None = None,
    kept: Kept | None = None,
) -> RoundReport | None:
    """Decide everything that waits, once, and commit it.

    ``running`` is needed if the choice keeps spare. What is ``kept`` of the round before saves
    time, and changes nothing else.

    Returns None when nothing waits, or when nothing has changed since a round
    that placed nothing: such slots leave no round.

    Raises
    ------
    SlotSkippedError
        If neither the policy nor the fallback gave a feasible allocation.
    StaleEpochError
        If the lease was lost meanwhile; nothing was written then.
    """
    started = time.perf_counter()
    kept = kept or Kept()
    view = store.read_cluster(lease)
    if not view.requests and view.reserved is None:
        return None
    if choice.spare is None or running is None:
        seen = _seen(view, kept)
    else:
        # What runs is read for rounds alone that have something to decide.
        seen_running = running.read_running(lease)
        view = seen_running.cluster
        seen = _with_spare(seen_running, choice.spare, kept)
    seen = _with_margin(_with_reservations(view, seen), choice.spot_margin)
    snapshot, names = seen.snapshot, seen.names
    if not view.requests and not (seen.reserved is not None and seen.reserved.changes):
        return None
    read_s = time.perf_counter() - started

    zones = _zones(view, choice) if choice.zones else ()
    who = Deciding(policy=choice.name, parameters=choice.parameters, zones=zones)
    digest = _inputs(slot, choice, seen, who).digest(kept.pieces)
    if _would_repeat(view.last, digest):
        return None
    decided = _decide(slot, choice, seen, who=who, decider=decider, kept=kept)
    ranking = _first_ranking_resource(snapshot.resources, choice.parameters)
    ideal, ideal_s = _ideal(decided.data, ranking, choice, decider)
    shares = _shares(snapshot, decided.allocation, names, ideal, seen.reserved)
    spot = _spot_commit(choice, seen, decided.allocation.details.get("spot"))
    placements = _placements(view, decided.allocation, seen.reserved)
    commit_started = time.perf_counter()
    committed = store.commit_round(
        RoundCommit(
            holder=lease.holder,
            epoch=lease.epoch,
            slot_start_at=slot.start_at,
            slot_length_s=slot.length_s,
            policy=choice.name,
            decided_by="policy" if decided.fallback_reason is None else "fallback",
            fallback_reason=decided.fallback_reason,
            parameters=dict(choice.parameters),
            seed=decided.inputs.seed,
            engine_version=engine_version(),
            budget_units=decided.inputs.budget_units,
            work=decided.allocation.work,
            cut=decided.allocation.cut,
            inputs=decided.data,
            inputs_digest=digest,
            outcome=packed(decided.document),
            shares=shares,
            bound=None if ideal is None else ideal.bound,
            fair_distance=_fair_distance(shares),
            timings={
                "read_seconds": read_s,
                "policy_seconds": decided.seconds,
                "bound_seconds": ideal_s,
                "decide_seconds": time.perf_counter() - started,
            },
            placements=placements,
            host_versions=_versions(view, decided.allocation, spot, seen.reserved),
            waiting=waiting_requests(
                slot.start_at,
                view,
                snapshot,
                decided.allocation,
                names,
                shares=shares,
                reserved=seen.reserved,
            )
            if decided.allocation.left_out or any(each.short is not None for each in view.requests)
            else {},
            group_shares=_group_shares(snapshot, decided.allocation, names, ideal),
            prices=_labelled(view, None if ideal is None else ideal.prices),
            spot=spot,
            keeps_rooms=view.spot is not None and bool(view.spot.kept),
            reserved=None if seen.reserved is None else seen.reserved.commit,
        )
    )
    ended = time.perf_counter()
    return RoundReport(
        number=committed.number,
        decided_by=decided.inputs.policy,
        fallback_reason=decided.fallback_reason,
        games=games_of(decided.allocation.details),
        phases_s={
            "read": read_s,
            "policy": decided.seconds,
            "bound": ideal_s,
            "commit": ended - commit_started,
        },
        placed=sum(map(len, committed.assignments.values())),
        left_out=sum(left.count for left in decided.allocation.left_out),
        dropped=sum(part.count for part in committed.dropped),
        duration_s=ended - started,
        assignments=committed.assignments,
    )


def _with_reservations(view: ClusterView, seen: _RoundView) -> _RoundView:
    """Return what is left to decide once reservations have their room."""
    if view.reserved is None:
        return seen
    settled = settle_reservations(view, view.reserved, seen.snapshot)
    # What is drawn and kept is held: what quotas leave is less by that.
    quotas = tuple(
        (owner, resource, limit, held + beside)
        for (owner, resource, limit, held), beside in zip(
            seen.names.quotas, settled.beside.tolist(), strict=True
        )
    )
    names = replace(seen.names, reserved=settled.names, quotas=quotas)
    return replace(seen, snapshot=settled.rest, names=names, reserved=settled)


def _placements(
    view: ClusterView, allocation: Allocation, reserved: SettledReservations | None
) -> tuple[Placement, ...]:
    """Return what is placed, first of all what draws on reservations."""
    drawn = () if reserved is None else reserved.inputs.drawn
    return tuple(
        Placement(
            request_id=view.requests[request].id,
            host_id=view.hosts[host].id,
            count=count,
            shared_pool=view.requests[request].shared_pool,
        )
        for request, host, count in (*drawn, *allocation.placed.tolist())
    )


def _versions(
    view: ClusterView,
    allocation: Allocation,
    spot: SpotCommit | None,
    reserved: SettledReservations | None,
) -> Mapping[UUID, int]:
    """Return the versions, as the round saw them, of all hosts that it does something with."""
    placed_on = [view.hosts[host] for host in np.unique(allocation.placed[:, 1]).tolist()]
    versions = {host.id: host.version for host in placed_on}
    if spot is not None:
        used = {end.host_id for end in spot.ends} | {room.host_id for room in spot.lets_in}
        versions |= {host.id: host.version for host in view.hosts if host.id in used}
    if reserved is not None:
        for _, index, _ in (*reserved.inputs.drawn, *reserved.inputs.kept):
            host = view.hosts[index]
            versions[host.id] = host.version
    return versions


def _spot_commit(
    choice: PolicyChoice, seen: _RoundView, told: Mapping[str, Any] | None
) -> SpotCommit | None:
    """Return which spot VMs the round ends, and whom that lets in where; None: it ends none."""
    names, spot = seen.names, seen.snapshot.spot
    if spot is None or not told or not told["ends"]:
        return None

    def host_of(index: int) -> UUID:
        return UUID(names.hosts[index][0])

    def request_of(index: int) -> UUID:
        return UUID(names.requests[index][0])

    return SpotCommit(
        ends=tuple(
            SpotEnd(
                vm_id=UUID(names.spot[vm][0]),
                host_id=host_of(spot.host[vm]),
                request_id=request_of(request),
            )
            for vm, request in told["ends"]
        ),
        lets_in=tuple(
            KeptRoom(request_id=request_of(request), host_id=host_of(host), count=count)
            for request, host, count in told["lets_in"]
        ),
        grace_s=choice.spot_grace_s,
        hold_s=int(choice.room_hold_s),
    )


def _labelled(view: ClusterView, prices: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Tell classes of hosts by the labels that they carry."""
    if prices is None:
        return None
    classes = [
        {"labels": list(view.hosts[each["host"]].labels)}
        | {name: value for name, value in each.items() if name != "host"}
        for each in prices["classes"]
    ]
    return {**prices, "classes": classes}


def _with_margin(seen: _RoundView, part: float) -> _RoundView:
    """Have new spot VMs leave a part of each resource free."""
    spot = seen.snapshot.spot
    if spot is None:
        return seen
    margin = round(part * 1000)
    return replace(seen, snapshot=replace(seen.snapshot, spot=replace(spot, margin=margin)))


def _seen(view: ClusterView, kept: Kept) -> _RoundView:
    snapshot, names = to_snapshot(view, known=kept.arrays)
    return _RoundView(snapshot=snapshot, names=names, freed=freed_rows(view), spare=None)


def _with_spare(view: RunningView, kind: str, kept: Kept) -> _RoundView:
    running, names = to_running(view, to_move=False, known=kept.arrays)
    domain = domains_of(kind, view.cluster.hosts).of_host
    return _RoundView(
        snapshot=running.snapshot,
        names=names.snapshot,
        freed=freed_rows(view.cluster),
        spare=SpareInputs(running=running, domain=domain),
    )


def _zones(view: ClusterView, choice: PolicyChoice) -> tuple[ZoneInputs, ...]:
    """Return the zones that have policies of their own, with their hosts, and the rest."""
    return zones_of(
        [zone_of(host.labels) for host in view.hosts],
        choice.zones,
        NamedPolicy(policy=choice.name, parameters=choice.parameters),
    )


def _inputs(slot: Slot, choice: PolicyChoice, seen: _RoundView, who: Deciding) -> RoundInputs:
    seed = int(slot.start_at.timestamp()) if choice.seed is None else choice.seed
    return RoundInputs(
        snapshot=seen.snapshot,
        names=seen.names,
        freed=seen.freed,
        spare=seen.spare,
        reserved=None if seen.reserved is None else seen.reserved.inputs,
        policy=who.policy,
        parameters=who.parameters,
        seed=seed,
        budget_units=choice.budget_units,
        zones=who.zones,
    )


def _would_repeat(last: LatestRound | None, digest: str) -> bool:
    """Nothing that a policy sees has changed since a round that placed nothing."""
    return (
        last is not None
        and last.inputs_digest == digest
        and last.placed == 0
        and last.dropped == 0
        and not last.cut
    )


def _decide(
    slot: Slot,
    choice: PolicyChoice,
    seen: _RoundView,
    *,
    who: Deciding,
    decider: RoundDecider,
    kept: Kept,
) -> _Decided:
    """Ask the policy (of each zone), then the fallback; the first feasible allocation counts."""
    reasons: list[str] = []
    decided: list[_Decided] = []

    def ask(each: Deciding) -> Allocation:
        its, what = choice, seen
        if each is not who:
            its = replace(choice, budget_units=None, decision_time_s=FALLBACK_TIME_S)
            what = _simpler(seen)
        inputs = _inputs(slot, its, what, each)
        data = inputs.encode(kept.pieces)
        decision = decider.decide(data, policy=each.policy, deadline_s=its.decision_time_s)
        decided.append(
            _Decided(
                inputs=inputs,
                data=data,
                document=decision.document,
                allocation=allocation_of(decision.document),
                fallback_reason=reasons[0] if reasons else None,
                seconds=decision.seconds,
            )
        )
        return decided[-1].allocation

    def note(each: Deciding, error: Exception) -> None:
        log.error("policy_failed", policy=each.policy, error=str(error))
        reasons.append(str(error))

    failures = (PolicyFailedError, InfeasibleAllocationError)
    if first_feasible(who, seen.snapshot, ask, note, failures) is None:
        raise SlotSkippedError(tuple(reasons))
    return decided[-1]


def _simpler(seen: _RoundView) -> _RoundView:
    """Return what was seen less what may have taken too long: no slot is skipped for its sake.

    That is spare, and the looks for whom spot VMs might end: none ends.
    """
    snapshot = seen.snapshot
    if snapshot.spot is not None:
        spot = replace(snapshot.spot, may_end=np.zeros_like(snapshot.spot.may_end))
        snapshot = replace(snapshot, spot=spot)
    return replace(seen, snapshot=snapshot, spare=None)


def _ideal(
    data: bytes, resource: int, choice: PolicyChoice, decider: RoundDecider
) -> tuple[Ideal | None, float]:
    """The ideal beside the decision; one that cannot be had costs no round."""
    started = time.perf_counter()
    try:
        ideal = decider.ideal(data, resource=resource, deadline_s=choice.decision_time_s)
    except PolicyFailedError as error:
        log.warning("bound_failed", error=str(error))
        return None, time.perf_counter() - started
    return ideal, time.perf_counter() - started


def _first_ranking_resource(resources: tuple[str, ...], parameters: Mapping[str, Any]) -> int:
    ranking = parameters.get("ranking")
    return resources.index(ranking[0]) if ranking and ranking[0] in resources else 0


def _shares(
    snapshot: Snapshot,
    allocation: Allocation,
    names: SnapshotNames,
    ideal: Ideal | None,
    reserved: SettledReservations | None,
) -> tuple[dict[str, Any], ...]:
    """Dominant share of every tenant before and after, of the whole pool, and the fair one."""
    before = dominant_shares(snapshot.held, snapshot.pool)
    after = dominant_shares(snapshot.after(allocation.placed).held, snapshot.pool)
    shared = snapshot.count if snapshot.spot is None else snapshot.count * ~snapshot.spot.asks
    waiting = np.bincount(snapshot.tenant, weights=shared, minlength=len(before))
    for request, _, count in () if reserved is None else reserved.inputs.drawn:
        waiting[snapshot.tenant[request]] += count
    return tuple(
        {
            "tenant": name,
            "weight": float(snapshot.weight[index]),
            "before": float(before[index]),
            "after": float(after[index]),
            "target": None if ideal is None else ideal.target_shares[index],
            "asked": int(waiting[index]),
        }
        for index, (_, name) in enumerate(names.tenants)
    )


def _group_shares(
    snapshot: Snapshot, allocation: Allocation, names: SnapshotNames, ideal: Ideal | None
) -> tuple[dict[str, Any], ...]:
    """Dominant share of every group of tenants before and after, and the fair one."""
    tree = snapshot.tree
    if tree is None:
        return ()
    before, after = (
        shares_in_tree(tree, fractions_of_pool(held, snapshot.pool))
        for held in (snapshot.held, snapshot.after(allocation.placed).held)
    )
    name_of = {node: name for _, name, node in names.groups}
    return tuple(
        {
            "group": name,
            "parent": name_of.get(tree.parent[node]),
            "weight": float(tree.weight[node]),
            "before": float(before[node]),
            "after": float(after[node]),
            "target": None if ideal is None else ideal.node_targets[node],
        }
        for _, name, node in names.groups
    )


def _fair_distance(shares: Sequence[Mapping[str, Any]]) -> float | None:
    targets = [each["target"] for each in shares]
    if None in targets:
        return None
    return fair_distance(np.array([each["after"] for each in shares]), np.array(targets))
