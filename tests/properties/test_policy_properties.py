"""What every policy promises, on clusters of every shape."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from placement import (
    POLICIES,
    Reason,
    allocation_bound,
    check_allocation,
    policy_by_name,
    set_aside_unplaceable,
    shares_after,
    shortages,
)
from placement.model.reasons import (
    count_fitting_vms,
    count_fitting_vms_of_each,
    needed_at_once,
    needed_at_once_of_each,
)
from placement.packing.draft import Draft
from tests.builders import a_snapshot
from tests.properties.plain_best_fit import TiedShapesError, plain_best_fit
from tests.properties.strategies import SEEDS, contended_snapshots, every_policy, place, snapshots
from tests.properties.subjects import about, contains


@every_policy
@about("VMs that are placed and some that are left out")
@given(snapshot=contended_snapshots() | contended_snapshots() | snapshots(), seed=SEEDS)
def test_what_every_policy_promises(policy, snapshot, seed):
    """Placed once, since that costs most: each promise is a function below."""
    policy, parameters = policy

    allocation = place(policy, snapshot, seed)

    contains(len(allocation.placed) and allocation.left_out)
    check_allocation(snapshot, allocation, overload=parameters.get("overload"))
    same_seed_same_answer_to_the_last_bit(allocation, place(policy, snapshot, seed))
    nothing_is_left_out_that_still_fits(snapshot, allocation, parameters)
    placing_then_removing_restores_what_was_free(snapshot, allocation)
    the_bound_is_not_beaten(snapshot, allocation)
    shortages_are_of_what_is_free_afterwards(snapshot, allocation)


def same_seed_same_answer_to_the_last_bit(first, second):
    assert first.placed.tolist() == second.placed.tolist()
    assert first.left_out == second.left_out
    assert first.work == second.work
    shown = json.dumps(first.details, allow_nan=False)
    assert shown == json.dumps(second.details, allow_nan=False)


def nothing_is_left_out_that_still_fits(snapshot, allocation, parameters):
    free = snapshot.after_placing(allocation.placed).free
    for left in allocation.left_out:
        open_to = snapshot.eligible[left.request][snapshot.host_class]
        fits = (free[open_to] >= snapshot.demand[left.request]).all(axis=1).any()
        if left.reason is Reason.ABOVE_OVERLOAD:
            assert "overload" in parameters
            assert fits
        elif left.reason is Reason.NO_SLOTS:
            assert fits
        elif left.reason is not Reason.NOTHING_ASKED:
            assert not fits


def placing_then_removing_restores_what_was_free(snapshot, allocation):
    draft = Draft(snapshot)
    for request, host, count in allocation.placed.tolist():
        draft.put(request, host, count)
    for request, host, count in reversed(allocation.placed.tolist()):
        draft.remove(request, host, count)

    assert (draft.free == snapshot.free).all()
    assert (draft.held == snapshot.held).all()
    assert not draft.placed_by_host


def the_bound_is_not_beaten(snapshot, allocation):
    requests, counts = allocation.placed[:, 0], allocation.placed[:, 2]
    for resource in range(3):
        given_out = int((counts * snapshot.demand[requests, resource]).sum())
        assert given_out <= allocation_bound(snapshot, resource) * (1 + 1e-6) + 1e-6


def shortages_are_of_what_is_free_afterwards(snapshot, allocation):
    after = snapshot.after_placing(allocation.placed)
    for left in allocation.left_out:
        for short in shortages(after, left.request):
            demand = int(snapshot.demand[left.request, short.resource])
            assert short.missing == demand - int(after.free[short.nearest_host, short.resource]) > 0
            assert snapshot.eligible[left.request, snapshot.host_class[short.nearest_host]]
            assert 1 <= short.hosts_short <= short.hosts


@pytest.mark.parametrize(("name", "most_units"), [("fuga", 200), ("optimal", 2)])
@about("a search that was cut")
@given(snapshot=contended_snapshots(), seed=SEEDS, part=st.floats(0, 1))
def test_a_small_budget_cuts_the_search_never_the_rules(name, most_units, snapshot, seed, part):
    units = round(part * most_units)

    allocation = place(policy_by_name(name, {}), snapshot, seed, units)

    contains(allocation.cut)
    check_allocation(snapshot, allocation)
    assert allocation.work <= units
    assert allocation.cut == bool(allocation.details.get("cuts"))


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=40)
@given(snapshot=contended_snapshots(), seed=SEEDS, unit=st.sampled_from([2.0**-30, 2.0**20]))
def test_the_unit_of_weights_changes_nothing(name, snapshot, seed, unit):
    other = dataclasses.replace(snapshot, weight=snapshot.weight * unit)
    policy = policy_by_name(name, {})

    there, here = place(policy, other, seed), place(policy, snapshot, seed)

    assert there.placed.tolist() == here.placed.tolist()
    assert there.left_out == here.left_out


@every_policy
@given(snapshot=snapshots())
def test_what_was_set_aside_would_have_been_left_out_for_the_same_reason(policy, snapshot):
    policy, _ = policy

    rest, aside = set_aside_unplaceable(snapshot)

    check_allocation(rest, place(policy, rest))
    shown = {each.request: each for each in place(policy, snapshot).left_out}
    assert all(shown[each.request] == each for each in aside)


@about("a tenant whose next request moved up")
@given(snapshot=contended_snapshots(max_requests=9))
def test_best_fit_in_buckets_is_best_fit_host_by_host(snapshot):
    allocation = place(policy_by_name("best_fit_drfh", {}), snapshot)

    try:
        expected = plain_best_fit(snapshot)
    except TiedShapesError:
        reject()
    left_out = {int(snapshot.tenant[left.request]) for left in allocation.left_out}
    contains(len(snapshot.count) > len(snapshot.weight) and left_out)
    assert allocation.placed.tolist() == expected


@given(
    name=st.sampled_from(
        ["best_fit_drfh", "first_fit_drfh", "drf_pool", "slots", "first_fit", "best_fit"]
    ),
    snapshot=snapshots(),
    order=st.randoms(use_true_random=False),
)
def test_renaming_tenants_only_renames_the_result(name, snapshot, order):
    new = list(range(len(snapshot.weight)))
    order.shuffle(new)
    old = np.argsort(new)
    renamed = dataclasses.replace(
        snapshot,
        tenant=np.array(new, dtype=np.int64)[snapshot.tenant],
        weight=snapshot.weight[old],
        held=snapshot.held[old],
    )
    policy = policy_by_name(name, {})

    assert place(policy, renamed).placed.tolist() == place(policy, snapshot).placed.tolist()


@given(snapshot=snapshots(), seed=SEEDS)
def test_renaming_tenants_only_renames_the_result_of_the_game(snapshot, seed):
    new = np.arange(len(snapshot.weight))[::-1].copy()
    renamed = dataclasses.replace(
        snapshot,
        tenant=new[snapshot.tenant],
        weight=snapshot.weight[::-1].copy(),
        held=snapshot.held[::-1].copy(),
    )
    policy = policy_by_name("fuga", {})

    assert (
        place(policy, renamed, seed).placed.tolist()
        == place(policy, snapshot, seed).placed.tolist()
    )


@pytest.mark.parametrize("name", ["best_fit_drfh", "best_fit_hdrf", "tsf_fit", "best_fit"])
@given(
    sizes=st.permutations([(301, 1103), (509, 811), (701, 503), (1303, 307)]),
    count=st.integers(1, 12),
)
def test_renaming_hosts_only_renames_the_result_when_nothing_ties(name, sizes, count):
    def placed(order):
        snapshot = a_snapshot(
            capacity=order, demand=[(17, 23), (29, 13)], count=count, resources=("a", "b")
        )
        rows = place(policy_by_name(name, {}), snapshot).placed.tolist()
        return sorted((q, tuple(order[h]), n) for q, h, n in rows)

    assert placed(sizes) == placed(sorted(sizes))


@pytest.mark.parametrize(
    "name",
    ["first_fit_drfh", "psdsf_fit", "drf_pool", "slots", "first_fit", "best_fit", "random_fit"],
)
@given(snapshot=contended_snapshots(), order=st.permutations(range(3)), seed=SEEDS)
def test_the_order_of_resources_changes_nothing_where_the_first_has_no_part(
    name, snapshot, order, seed
):
    """H of Best-Fit DRFH divides by the first resource; games rank the first two."""
    turned = dataclasses.replace(
        snapshot,
        resources=tuple(snapshot.resources[r] for r in order),
        **{
            each: getattr(snapshot, each)[:, list(order)]
            for each in ("capacity", "free", "demand", "held")
        },
    )
    policy = policy_by_name(name, {})

    assert (
        place(policy, turned, seed).placed.tolist() == place(policy, snapshot, seed).placed.tolist()
    )


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "optimal"])
@given(snapshot=contended_snapshots(), seed=SEEDS)
def test_the_unit_of_a_resource_changes_nothing(name, snapshot, seed):
    """Powers of two, which floats bear without rounding; a solver may rest on another vertex."""
    unit = np.array([1, 2**10, 2**3])
    in_units = dataclasses.replace(
        snapshot,
        **{each: getattr(snapshot, each) * unit for each in ("capacity", "free", "demand", "held")},
    )
    policy = policy_by_name(name, {})

    there, here = place(policy, in_units, seed), place(policy, snapshot, seed)

    assert there.placed.tolist() == here.placed.tolist()
    assert there.left_out == here.left_out


@about("an exchange")
@settings(max_examples=150)
@given(snapshot=contended_snapshots(min_hosts=8, max_hosts=16), seed=SEEDS)
def test_a_richer_tenant_of_fuga_could_not_have_made_room_for_a_poorer_one(snapshot, seed):
    """Levels differ by at most one VM, or no VM of the richer could have been the poorer's."""
    allocation = place(policy_by_name("fuga", {}), snapshot, seed)
    contains(allocation.details["exchanges"])
    free = snapshot.after_placing(allocation.placed).free
    level = shares_after(snapshot, allocation) / snapshot.weight
    one_vm = (
        np.divide(
            snapshot.demand,
            snapshot.pool,
            out=np.zeros(snapshot.demand.shape),
            where=snapshot.pool > 0,
        ).max(axis=1)
        / snapshot.weight[snapshot.tenant]
    )

    for left in allocation.left_out:
        poor = int(snapshot.tenant[left.request])
        if left.reason is not Reason.NO_ROOM:
            continue
        for request, host, _ in allocation.placed.tolist():
            rich = int(snapshot.tenant[request])
            gap = level[rich] - level[poor]
            if gap <= max(one_vm[request], one_vm[left.request]) + 1e-6:
                continue
            if not snapshot.eligible[left.request, snapshot.host_class[host]]:
                continue
            fits = free[host] + snapshot.demand[request] >= snapshot.demand[left.request]
            after = level[poor] + one_vm[left.request]
            assert not (fits.all() and after < level[rich] - one_vm[request] - 1e-6)


@about("an exchange where there are quotas")
@settings(max_examples=30)
@given(snapshot=contended_snapshots(min_hosts=8, max_hosts=16), seed=SEEDS)
def test_without_quotas_nothing_is_exchanged(snapshot, seed):
    with_quotas = place(policy_by_name("fuga", {}), snapshot, seed)
    contains(with_quotas.details["exchanges"])

    allocation = place(policy_by_name("fuga", {"quota": False}), snapshot, seed)

    assert allocation.details["exchanges"] == 0


@given(snapshot=snapshots())
def test_what_fits_and_is_needed_of_many_requests_is_what_it_is_of_each(snapshot):
    requests = np.flatnonzero(snapshot.count)
    missing = (snapshot.count[requests] + 1) // 2

    fit = count_fitting_vms_of_each(snapshot, requests, snapshot.free)
    needed = needed_at_once_of_each(snapshot, requests, missing)

    pairs = list(zip(requests.tolist(), missing.tolist(), strict=True))
    assert fit.tolist() == [count_fitting_vms(snapshot, each, snapshot.free) for each, _ in pairs]
    assert needed.tolist() == [needed_at_once(snapshot, *each) for each in pairs]
