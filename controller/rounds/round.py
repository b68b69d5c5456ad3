"""One round: `run_round` calls its stages, which are defined below in the same order."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import structlog

from controller.errors import PolicyFailedError, SlotSkippedError
from controller.rounds.draft import RoundDraft
from controller.rounds.failure_domains import failure_domains_of
from controller.rounds.holding_memory import RoundMemory, stop_charging
from controller.rounds.inputs import (
    RoundCache,
    RoundInputs,
    SpareInputs,
    compressed_json,
    games_of,
    parse_allocation,
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
from controller.rounds.reservations import settle_reservations
from controller.rounds.running_state import to_running
from controller.rounds.shares import record_shares
from controller.rounds.snapshots import all_requests, freed_rows, to_snapshot
from controller.rounds.wait_reasons import waiting_requests
from placement import Allocation, InfeasibleAllocationError
from placement.catalog.zone_policies import (
    NamedPolicy,
    RoundPolicies,
    build_zone_inputs,
    first_feasible_allocation,
)
from registry.requests import zone_of
from registry.rounds import (
    KeptRoom,
    Lease,
    PastHoldingChanges,
    Placement,
    ReservedCommit,
    RoundCommit,
    SpotCommit,
    SpotEnd,
)
from service.version import engine_version

log = structlog.get_logger()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off in this block, for all threads.

    A round creates hundreds of thousands of objects that live until its end. The collector would
    traverse them again and again, which costs a round of a large cluster more than its read.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@gc_disabled()
def run_round(
    slot: Slot,
    lease: Lease,
    choice: PolicyChoice,
    *,
    store: RoundStore,
    decider: RoundDecider,
    running: RunningStore | None = None,
    kept: RoundCache | None = None,
) -> RoundReport | None:
    """Decide all waiting requests once, and commit the decision.

    ``running`` is needed if the choice keeps spare capacity. ``kept`` holds caches from the
    previous round, which save time and do not change the outcome.

    Returns None if nothing waits, or if nothing has changed since a round that placed nothing:
    such slots leave no round.

    Raises
    ------
    SlotSkippedError
        If neither the policy nor the fallback gave a feasible allocation.
    StaleEpochError
        If the lease is lost; nothing is written then.
    """
    draft = RoundDraft(slot=slot, lease=lease, choice=choice, kept=kept or RoundCache())
    # 1. Read the rows, once.
    _read_view(draft, store, running)
    if not all_requests(draft.view) and draft.view.reserved is None:
        _stop_charging(draft, store)
        return None
    # 2. Convert them to arrays.
    _build_snapshot(draft)
    # 3. Place reservations.
    _settle_reservations(draft)
    # 4. Set the margin that new spot VMs leave free, and read what tenants held in the past.
    _leave_spot_margin(draft)
    _remember_holdings(draft, store)
    draft.phases_s["read"] = draft.elapsed_s
    if not all_requests(draft.view) and not (draft.reserved and draft.reserved.changes):
        _stop_charging(draft, store)
        return None
    # 5. Choose the policies; end here if they would repeat the last round.
    _choose_policies(draft)
    if _repeats_last_round(draft):
        return None
    # 6. Run the policies.
    _decide_allocation(draft, decider)
    # 7. Compute the bound and the fair shares.
    _find_ideal(draft, decider)
    # 8. Record the shares.
    record_shares(draft)
    # 9. End spot and borrowed VMs.
    _end_vms(draft)
    # 10. Explain the waiting requests.
    draft.waiting = waiting_requests(draft)
    # 11. Write decision and record in one transaction.
    return _commit_draft(draft, store)


def _read_view(draft: RoundDraft, store: RoundStore, running: RunningStore | None) -> None:
    """Fill ``view``; if spare is kept and something waits, read it with all VMs in ``running``."""
    draft.view = store.read_cluster(draft.lease)
    waits = all_requests(draft.view) or draft.view.reserved is not None
    if waits and draft.choice.spare is not None and running is not None:
        draft.running = running.read_running(draft.lease)
        draft.view = draft.running.cluster


def _build_snapshot(draft: RoundDraft) -> None:
    """Fill ``snapshot``, ``names`` and ``freed`` from the rows, and ``spare`` if VMs were read."""
    draft.freed = freed_rows(draft.view)
    if draft.running is None or draft.choice.spare is None:
        draft.snapshot, draft.names = to_snapshot(draft.view, known=draft.kept.arrays, lends=True)
        return
    state, names = to_running(draft.running, to_move=False, known=draft.kept.arrays)
    draft.snapshot, draft.names = state.snapshot, names.snapshot
    domains = failure_domains_of(draft.choice.spare, draft.view.hosts)
    draft.spare = SpareInputs(running=state, domain=domains.of_host)


def _settle_reservations(draft: RoundDraft) -> None:
    """Fill ``reserved``; remove its room and VMs from ``snapshot``, and count both in quotas."""
    if draft.view.reserved is None:
        return
    settled = settle_reservations(draft.view, draft.view.reserved, draft.snapshot)
    # Drawn and kept amounts count as held, so quotas leave less.
    quotas = tuple(
        (owner, resource, limit, held + further)
        for (owner, resource, limit, held), further in zip(
            draft.names.quotas, settled.drawn_or_kept.tolist(), strict=True
        )
    )
    draft.reserved, draft.snapshot = settled, settled.rest
    draft.names = replace(draft.names, reserved=settled.names, quotas=quotas)


def _leave_spot_margin(draft: RoundDraft) -> None:
    """Set in ``snapshot`` the part of each resource that new spot VMs leave free."""
    if draft.snapshot.spot is not None:
        spot = replace(draft.snapshot.spot, margin=round(draft.choice.spot_margin * 1000))
        draft.snapshot = replace(draft.snapshot, spot=spot)


def _remember_holdings(draft: RoundDraft, store: RoundStore) -> None:
    """Fill ``memory``, and set it in ``snapshot``, if past holdings count."""
    if draft.choice.memory_s:
        cache = draft.kept.memory
        draft.memory = RoundMemory.read(draft.view, store, cache, draft.choice.memory_s)
        draft.snapshot = replace(draft.snapshot, memory=draft.memory.memory)


def _stop_charging(draft: RoundDraft, store: RoundStore) -> None:
    """Charge no tenant for what it holds while nothing waits."""
    if draft.choice.memory_s:
        stop_charging(draft.view, draft.lease, store, draft.kept.memory, draft.choice.memory_s)


def _choose_policies(draft: RoundDraft) -> None:
    """Fill ``who`` with the general policy and those of zones, and compute ``digest``."""
    choice = draft.choice
    zones = build_zone_inputs(
        [zone_of(host.labels) for host in draft.view.hosts] if choice.zones else (),
        choice.zones,
        NamedPolicy(policy=choice.name, parameters=choice.parameters),
    )
    draft.who = RoundPolicies(policy=choice.name, parameters=choice.parameters, zones=zones)
    draft.digest = _build_inputs(draft, draft.who).digest(draft.kept.pieces)


def _repeats_last_round(draft: RoundDraft) -> bool:
    """Return whether the inputs equal those of the last round, which placed nothing."""
    last = draft.view.last
    return (
        last is not None
        and last.inputs_digest == draft.digest
        and last.placed == 0
        and last.dropped == 0
        and not last.cut
    )


def _decide_allocation(draft: RoundDraft, decider: RoundDecider) -> None:
    """Fill ``inputs``, ``data``, ``outcome`` and ``allocation`` with the first feasible decision.

    If the policy fails, the fallback decides and ``fallback_reason`` is set.
    """
    reasons: list[str] = []

    def decide_by(who: RoundPolicies) -> Allocation:
        inputs, deadline_s = _build_inputs(draft, who), draft.choice.decision_time_s
        if who is not draft.who:
            inputs, deadline_s = _fallback_inputs(inputs), FALLBACK_TIME_S
        draft.inputs, draft.data = inputs, inputs.encode(draft.kept.pieces)
        decision = decider.decide(draft.data, policy=who.policy, deadline_s=deadline_s)
        draft.outcome, draft.allocation = decision.document, parse_allocation(decision.document)
        draft.phases_s["policy"] = decision.seconds
        return draft.allocation

    def record_failure(who: RoundPolicies, error: Exception) -> None:
        log.error("policy_failed", policy=who.policy, error=str(error))
        reasons.append(str(error))

    failures = (PolicyFailedError, InfeasibleAllocationError)
    if (
        first_feasible_allocation(draft.who, draft.snapshot, decide_by, record_failure, failures)
        is None
    ):
        raise SlotSkippedError(tuple(reasons))
    draft.fallback_reason = reasons[0] if reasons else None


def _find_ideal(draft: RoundDraft, decider: RoundDecider) -> None:
    """Fill ``ideal`` for the first ranking resource; a round can be committed without it."""
    started = time.perf_counter()
    resources, ranking = draft.snapshot.resources, draft.choice.parameters.get("ranking")
    resource = resources.index(ranking[0]) if ranking and ranking[0] in resources else 0
    try:
        draft.ideal = decider.ideal(
            draft.data, resource=resource, deadline_s=draft.choice.decision_time_s
        )
    except PolicyFailedError as error:
        log.warning("bound_failed", error=str(error))
    draft.phases_s["bound"] = time.perf_counter() - started


def _end_vms(draft: RoundDraft) -> None:
    """Fill ``spot`` with the VMs that the allocation ends, and who gets their room."""
    names, snapshot, view = draft.names, draft.snapshot, draft.view.spot
    ends: list[SpotEnd] = []
    lets_in: Counter[tuple[UUID, UUID]] = Counter()

    def host_of(index: int) -> UUID:
        return UUID(names.hosts[index][0])

    def request_of(index: int) -> UUID:
        return UUID(names.requests[index][0])

    for kind, running, of_vms in (
        ("spot", snapshot.spot, names.spot),
        ("borrowed", snapshot.borrowed, names.borrowed),
    ):
        preempted = draft.allocation.details.get(kind)
        if running is None or not preempted or not preempted["ends"]:
            continue
        ends += [
            SpotEnd(
                vm_id=UUID(of_vms[vm][0]),
                host_id=host_of(running.host[vm]),
                request_id=request_of(request),
            )
            for vm, request in preempted["ends"]
        ]
        for request, host, count in preempted["lets_in"]:
            lets_in[request_of(request), host_of(host)] += count
    draft.spot = SpotCommit(
        ends=tuple(ends),
        lets_in=tuple(
            KeptRoom(request_id=request, host_id=host, count=count)
            for (request, host), count in lets_in.items()
        ),
        grace_s=draft.choice.spot_grace_s,
        hold_s=int(draft.choice.room_hold_s),
        keeps_rooms=view is not None and bool(view.kept),
    )


def _commit_draft(draft: RoundDraft, store: RoundStore) -> RoundReport:
    """Write the draft, and return the report of the committed round."""
    started = time.perf_counter()
    committed = store.commit_round(_round_commit(draft))
    return RoundReport(
        number=committed.number,
        decided_by=draft.inputs.policy,
        fallback_reason=draft.fallback_reason,
        games=games_of(draft.allocation.details),
        phases_s={**draft.phases_s, "commit": time.perf_counter() - started},
        placed=sum(map(len, committed.assignments.values())),
        left_out=sum(left.count for left in draft.left_out),
        dropped=sum(part.count for part in committed.dropped),
        duration_s=draft.elapsed_s,
        assignments=committed.assignments,
    )


def _round_commit(draft: RoundDraft) -> RoundCommit:
    """Convert the draft to the register center's record of a commit."""
    hosts, requests = draft.view.hosts, all_requests(draft.view)
    placements = tuple(
        Placement(
            request_id=requests[request].id,
            host_id=hosts[host].id,
            count=count,
            shared_pool=requests[request].shared_pool,
            volumes=requests[request].volumes,
            borrowed=requests[request].borrowed,
        )
        for request, host, count in (*draft.drawn, *draft.allocation.placed.tolist())
    )
    reserved = ReservedCommit() if draft.reserved is None else draft.reserved.commit
    past_holdings: PastHoldingChanges | None = None
    if draft.memory is not None:
        held = draft.snapshot.after_placing(draft.allocation.placed).held
        past_holdings = draft.memory.changes(held, draft.snapshot, draft.allocation)
        draft.kept.memory.charges = True
    used = {each.host_id for each in placements} | {each.host_id for each in draft.spot.ends}
    used |= {each.host_id for each in draft.spot.lets_in}
    used |= {host for each in reserved.reservations for host, _ in each.kept}
    return RoundCommit(
        holder=draft.lease.holder,
        epoch=draft.lease.epoch,
        slot_start_at=draft.slot.start_at,
        slot_length_s=draft.slot.length_s,
        policy=draft.choice.name,
        decided_by="policy" if draft.fallback_reason is None else "fallback",
        fallback_reason=draft.fallback_reason,
        parameters=dict(draft.choice.parameters),
        seed=draft.inputs.seed,
        engine_version=engine_version(),
        budget_units=draft.inputs.budget_units,
        work=draft.allocation.work,
        cut=draft.allocation.cut,
        inputs=draft.data,
        inputs_digest=draft.digest,
        outcome=compressed_json(draft.outcome),
        shares=draft.shares,
        group_shares=draft.group_shares,
        holdings=draft.holdings,
        fair_distance=draft.fair_distance,
        bound=None if draft.ideal is None else draft.ideal.bound,
        prices=_labelled_prices(draft),
        timings={
            **{f"{phase}_seconds": seconds for phase, seconds in draft.phases_s.items()},
            "decide_seconds": draft.elapsed_s,
        },
        placements=placements,
        host_versions={host.id: host.version for host in hosts if host.id in used},
        waiting=draft.waiting,
        spot=draft.spot,
        reserved=reserved,
        memory=None if draft.memory is None else draft.memory.document(),
        past_holdings=past_holdings,
    )


def _labelled_prices(draft: RoundDraft) -> Mapping[str, Any] | None:
    """Return the prices, with each class identified by its labels instead of its first host."""
    prices = None if draft.ideal is None else draft.ideal.prices
    if prices is None:
        return None
    classes = [
        {"labels": list(draft.view.hosts[each["host"]].labels)}
        | {name: value for name, value in each.items() if name != "host"}
        for each in prices["classes"]
    ]
    return {**prices, "classes": classes}


def _build_inputs(draft: RoundDraft, who: RoundPolicies) -> RoundInputs:
    """Return the inputs of a decision by the given policies."""
    choice = draft.choice
    return RoundInputs(
        snapshot=draft.snapshot,
        names=draft.names,
        freed=draft.freed,
        spare=draft.spare,
        reserved=None if draft.reserved is None else draft.reserved.inputs,
        policy=who.policy,
        parameters=who.parameters,
        seed=int(draft.slot.start_at.timestamp()) if choice.seed is None else choice.seed,
        budget_units=choice.budget_units,
        zones=who.zones,
    )


def _fallback_inputs(inputs: RoundInputs) -> RoundInputs:
    """Return simpler inputs for the fallback, so that it takes little time and no slot is skipped.

    The fallback keeps no spare capacity, ends no spot or borrowed VM and has no budget.
    """
    snapshot = inputs.snapshot
    if snapshot.spot is not None:
        spot = replace(snapshot.spot, may_end=np.zeros_like(snapshot.spot.may_end))
        snapshot = replace(snapshot, spot=spot)
    if (borrowed := snapshot.borrowed) is not None:
        borrowed = replace(borrowed, may_end=np.zeros_like(borrowed.may_end))
        snapshot = replace(snapshot, borrowed=borrowed)
    return replace(inputs, snapshot=snapshot, spare=None, budget_units=None)
