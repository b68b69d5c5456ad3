"""What the game promises: the best combinations, equilibria, utilities that add up."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placement import Budget, policy_by_name
from placement.fairness.targets import fair_targets
from placement.fuga.backward_induction import enumerate_subgames, equilibrium_path, solve_subgames
from placement.fuga.certificate import NO_GAIN, check_subgames
from placement.fuga.combinations import search
from placement.fuga.combinations.top_combinations import top_combinations
from placement.fuga.equilibrium import solve_game
from placement.fuga.game import UTILITY_TOLERANCE, Game
from placement.fuga.parameters import LARGEST_GAME, FugaParameters
from placement.fuga.players import find_players
from placement.fuga.service_order import ServiceOrder, fairness_of
from placement.fuga.strategies import TopCombinations
from placement.model.vm_kinds import max_vms_per_request, vm_kinds
from tests.properties.strategies import contended_snapshots, snapshots
from tests.properties.subjects import about, contains

RANKING = np.array([0, 1])
#: Too many for a table: combinations are searched.
THREE = np.array([0, 1, 2])


@st.composite
def hosts_and_kinds(draw):
    """Draw a host, often with room for many combinations, and kinds of VMs."""
    roomy = draw(st.integers(0, 3)) > 0
    free = np.array([draw(st.integers(6 if roomy else 1, 9)) for _ in range(3)])
    room = np.minimum(free, [draw(st.integers(5 if roomy else 0, 9)) for _ in range(3)])
    kinds = draw(st.integers(2 if roomy else 1, 4))
    amounts = st.integers(1, 3) if roomy else st.integers(0, 4)
    demand = np.array([[draw(amounts) for _ in range(3)] for _ in range(kinds)])
    most = np.array([draw(st.integers(2 if roomy else 0, 9)) for _ in range(kinds)])
    return free, room, demand, most


@st.composite
def large_hosts(draw):
    """Draw a host that a few kinds may fill to within a few hundredths, or wholly."""
    free = np.array([draw(st.integers(20, 40)) for _ in range(3)])
    kinds = draw(st.integers(2, 3))
    demand = np.array([[draw(st.integers(2, 9)) for _ in range(3)] for _ in range(kinds)])
    return free, free, demand, np.full(kinds, 20)


def every_combination(room, demand, most):
    """All that fit and are not empty, of kinds that demand something."""
    usable = np.where(demand.any(axis=1), most, 0)
    for counts in itertools.product(*(range(n + 1) for n in usable)):
        if any(counts) and (np.array(counts) @ demand <= room).all():
            yield counts


def best_scores(case, ranking):
    """Return the scores of all combinations by full enumeration, best first."""
    free, room, demand, most = case
    return sorted(
        (
            float(((np.array(counts) @ demand)[ranking] / free[ranking]).min())
            for counts in every_combination(room, demand, most)
        ),
        reverse=True,
    )


def searched(case, ranking, *, eta, seed, units=None):
    free, room, demand, most = case
    return top_combinations(
        free=free,
        room=room,
        demand=demand,
        maximum=most,
        ranking=ranking,
        eta=eta,
        rng=np.random.default_rng(seed),
        budget=Budget(units),
    )


@pytest.mark.parametrize("ranking", [RANKING, THREE], ids=["two", "three"])
@about("more combinations than are asked for")
@given(case=hosts_and_kinds(), eta=st.integers(1, 6), seed=st.integers(0, 100))
def test_the_best_combinations_are_those_of_full_enumeration(ranking, case, eta, seed):
    found = searched(case, ranking, eta=eta, seed=seed)

    scores = best_scores(case, ranking)
    contains(len(scores) > eta)
    assert found.score[:eta].tolist() == scores[:eta]
    assert len({tuple(row) for row in found.counts.tolist()}) == len(found.counts)
    assert not found.cut


@about("a second look at what the first one had no place for")
@given(case=large_hosts(), eta=st.integers(1, 3), seed=st.integers(0, 100))
def test_what_the_bounds_rule_out_is_not_among_the_best(case, eta, seed):
    """The first look keeps so few that the second, which drops by bounds, has to find the best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_QUICK_ROWS", 2)
        patch.setattr(search, "_QUICK_KEPT", 1)
        patch.setattr(search, "_round_to_reachable", lambda room, _demand: room)
        found = searched(case, THREE, eta=eta, seed=seed)

    scores = best_scores(case, THREE)
    contains(len(scores) > 2 * eta)
    assert found.score[:eta].tolist() == scores[:eta]
    assert not found.cut


@about("a search that was cut, or would have been a little earlier")
@given(
    case=hosts_and_kinds(),
    eta=st.integers(2, 6),
    seed=st.integers(0, 100),
    units=st.integers(0, 12),
)
def test_a_search_within_its_budget_is_called_cut_unless_it_found_the_best(case, eta, seed, units):
    found = searched(case, RANKING, eta=eta, seed=seed, units=units)

    scores = best_scores(case, RANKING)
    contains(found.cut or len(scores) > eta)
    assert found.cut or found.score[:eta].tolist() == scores[:eta]


def best_of_an_empty_host(free, demand, *, eta, rng, budget):
    """Return the best combinations where VMs of all kinds are there in plenty."""
    return top_combinations(
        free=free,
        room=free,
        demand=demand,
        maximum=np.full(len(demand), 10_000),
        ranking=RANKING,
        eta=eta,
        rng=rng,
        budget=budget,
    )


def test_a_host_without_gpus_is_not_searched_for_what_needs_them():
    rng = np.random.default_rng(0)
    with_gpus = np.stack(
        [rng.integers(1, 96_000, 40), rng.integers(1, 400_000, 40), np.full(40, 500)], axis=1
    )
    demand = np.concatenate([with_gpus, [[20_000, 90_000, 0]]])
    room, budget = np.array([96_000, 400_000, 0]), Budget()

    found = best_of_an_empty_host(room, demand, eta=3, rng=rng, budget=budget)

    assert found.counts[:3, -1].tolist() == [4, 3, 2]
    assert not found.counts[:, :-1].any()
    assert not found.cut
    assert budget.spent < 1_000


@given(seed=st.integers(0, 1000))
def test_a_large_host_with_many_kinds_is_searched_within_the_limit(seed):
    rng = np.random.default_rng(seed)
    demand = np.stack([rng.integers(1, 17, 20), rng.integers(1, 65, 20) * 512], axis=1)
    free = np.array([128, 512 * 1024])
    budget = Budget()

    found = best_of_an_empty_host(free, demand, eta=5, rng=rng, budget=budget)

    assert budget.spent < 60_000
    assert (found.counts @ demand <= free).all()
    assert found.score[0] >= 0.995 * best_reachable(demand, 128, 1024)


def best_reachable(demand, cores, halves_of_gib):
    """Return the best minimum utilization, by the table of all reachable sums."""
    reachable = [1] + [0] * cores  # a bit for each sum of memory
    for cpu, memory in demand.tolist():
        for core in range(cpu, cores + 1):
            reachable[core] |= reachable[core - cpu] << (memory // 512)
    mask = (1 << (halves_of_gib + 1)) - 1
    return max(
        min(core / cores, ((bits & mask).bit_length() - 1) / halves_of_gib)
        for core, bits in enumerate(reachable)
        if bits & mask
    )


def a_game(snapshot, seed, eta=3, alpha=2.0):
    kinds = vm_kinds(snapshot)
    serving = ServiceOrder(
        snapshot,
        kinds,
        targets=fair_targets(snapshot),
        offered=max_vms_per_request(snapshot, snapshot.free),
        given=np.zeros_like(snapshot.count),
        held=snapshot.held,
        alpha=alpha,
    )
    search = TopCombinations(kinds.demand, RANKING, eta, np.random.default_rng(seed), Budget())
    players = find_players(snapshot, kinds, snapshot.free, snapshot.free, RANKING)
    return Game.of(players, serving, search, kinds.demand, RANKING)


@given(
    snapshot=snapshots(min_requests=1),
    most=st.lists(st.integers(0, 2), min_size=1, max_size=3),
    seed=st.integers(0, 100),
)
def test_who_asks_alone_finds_something_where_anything_fits_and_else_draws_nothing(
    snapshot, most, seed
):
    game, rng = a_game(snapshot, seed), np.random.default_rng(seed)
    search = TopCombinations(game.demand, RANKING, 3, rng, Budget())
    left = np.resize(most, len(game.demand))
    for player in map(game.players.__getitem__, range(len(game.players))):
        before = rng.bit_generator.state

        found = search.strategies(player, left)

        assert bool(len(found)) == bool(np.minimum(player.fits, left).any())
        assert len(found) or rng.bit_generator.state == before


def brute_force(game, player, taken):
    """Return the choices of the subgame in plain recursion: (totals, [counts])."""
    if player == len(game.players):
        return taken, []
    options = game.clip_strategies(player, game.serving.available - taken)
    best = None
    for counts, skew in zip(options.counts, options.skewness, strict=True):
        totals, answers = brute_force(game, player + 1, taken + counts)
        utility = float(game.serving.fairness(totals[None])[0]) - skew
        if best is None or utility > best[0] + UTILITY_TOLERANCE:
            best = (utility, totals, [counts.tolist(), *answers])
    return best[1], best[2]


def with_a_choice(game):
    """Return how many players have more than one strategy."""
    return sum(len(game.strategies(player)) > 1 for player in range(len(game.players)))


@about("three players who have a choice")
@given(snapshot=contended_snapshots(max_hosts=4), seed=st.integers(0, 100))
def test_backward_induction_is_what_brute_force_finds(snapshot, seed):
    game = a_game(snapshot, seed)
    contains(with_a_choice(game) >= 3)
    assume(len(game.players))
    _, expected = brute_force(game, 0, np.zeros(len(game.demand), dtype=np.int64))

    solution = solve_game(
        game, equilibrium="exact", most_subgames=LARGEST_GAME, most_sweeps=0, budget=Budget()
    )

    assert solution.equilibrium == "exact"
    assert solution.certificate.of == "subgame_perfect"
    assert solution.certificate.holds
    assert [game.moves[player].counts.tolist() for player in sorted(game.moves)] == expected


def plain_algorithm_1(game):
    """Algorithm 1 of the paper: the last two in equilibrium, then one at a time backwards."""
    last = len(game.players) - 2
    taken, answers = brute_force(game, max(last, 0), np.zeros(len(game.demand), dtype=np.int64))
    for player in range(last - 1, -1, -1):
        left = game.serving.available - taken
        if not left.any():
            break
        game.refresh_strategies(player, left.tolist())
        options = game.clip_strategies(player, left)
        utilities = game.serving.fairness(taken + options.counts) - options.skewness
        chosen = int(np.flatnonzero(utilities >= utilities.max() - UTILITY_TOLERANCE)[0])
        answers.insert(0, options.counts[chosen].tolist())
        taken = taken + options.counts[chosen]
    return taken, answers


@about("three players who have a choice")
@given(snapshot=contended_snapshots(min_hosts=4, max_hosts=12), seed=st.integers(0, 100))
def test_algorithm_1_plays_backwards_from_the_last_two(snapshot, seed):
    game, again = a_game(snapshot, seed), a_game(snapshot, seed)
    contains(with_a_choice(game) >= 3)
    assume(len(game.players))
    totals, expected = plain_algorithm_1(again)

    solve_game(
        game, equilibrium="sequential", most_subgames=LARGEST_GAME, most_sweeps=0, budget=Budget()
    )

    assert [game.moves[player].counts.tolist() for player in sorted(game.moves)] == expected
    assert game.totals.tolist() == totals.tolist()


@about("a sweep that changed a move")
@given(
    snapshot=contended_snapshots(min_hosts=8, max_hosts=24, max_requests=14),
    seed=st.integers(0, 100),
    alpha=st.sampled_from([1.2, 2.0, 3.0]),
)
def test_after_the_sweeps_no_host_gains_by_another_strategy(snapshot, seed, alpha):
    game = a_game(snapshot, seed, alpha=alpha)
    assume(len(game.players))

    solution = solve_game(
        game, equilibrium="sweeps", most_subgames=LARGEST_GAME, most_sweeps=1000, budget=Budget()
    )

    contains(solution.potential[1] > solution.potential[0] + UTILITY_TOLERANCE)
    assert solution.cut is None
    assert solution.potential[1] >= solution.potential[0] - 1e-9
    assert plain_largest_gain(game) <= 2 * UTILITY_TOLERANCE
    assert solution.certificate.holds
    assert (game.totals <= game.serving.available).all()


def plain_largest_gain(game):
    """One player after another: the most that another of its strategies would gain it."""
    gains = [0.0]
    for player in range(len(game.players)):
        move = game.choice_of(player, tuple(game.totals.tolist()))
        others = game.totals - move.counts
        options = game.clip_strategies(player, game.serving.available - others)
        own = float(
            game.serving.fairness((others + move.counts)[None])[0]
            - move.strategies.skewness[move.chosen]
        )
        utilities = game.serving.fairness(others + options.counts) - options.skewness
        gains.append(float(utilities.max()) - own)
    return max(gains)


@about("a player who gains by deviating")
@given(snapshot=contended_snapshots(min_hosts=12, max_hosts=24), seed=st.integers(0, 100))
def test_a_certificate_names_the_largest_gain(snapshot, seed):
    game = a_game(snapshot, seed)
    assume(len(game.players))

    solution = solve_game(
        game, equilibrium="sequential", most_subgames=0, most_sweeps=0, budget=Budget()
    )

    contains(not solution.certificate.holds)
    assert solution.certificate.largest_gain == pytest.approx(plain_largest_gain(game), abs=1e-9)


@about("a strategy that is worse than the best")
@given(
    snapshot=contended_snapshots(min_hosts=2, max_hosts=6), seed=st.integers(0, 100), data=st.data()
)
def test_a_solver_that_errs_about_one_strategy_is_found_out(snapshot, seed, data):
    game = a_game(snapshot, seed)
    assume(len(game.players))
    tree = enumerate_subgames(game, range(len(game.players)), Budget())
    number = data.draw(st.integers(0, len(tree.turns) - 1))
    turn = tree.turns[number]
    place = data.draw(st.integers(0, len(turn.taken) - 1))
    strategy = data.draw(st.sampled_from(np.flatnonzero(turn.after[place] >= 0).tolist()))
    right = solve_subgames(game, tree)
    skewness = np.array(np.broadcast_to(turn.skewness, turn.after.shape))
    led_to = right.ends[number + 1][turn.after[place]]
    utility = game.serving.fairness(tree.totals[led_to]) - skewness[place]
    lost = float(utility[right.chosen[number][place]] - utility[strategy])
    skewness[place, strategy] -= 10
    tree.turns[number] = dataclasses.replace(turn, skewness=skewness)

    answers = solve_subgames(game, tree)
    game.moves = {move.player: move for move in equilibrium_path(game, tree, answers)}

    contains(lost > NO_GAIN)
    assert answers.chosen[number][place] == strategy
    if lost > NO_GAIN:
        assert check_subgames(game, tree, answers).largest_gain >= lost - UTILITY_TOLERANCE


@given(snapshot=snapshots(max_hosts=5, min_requests=1), seed=st.integers(0, 100))
def test_the_table_of_fairness_is_the_formula(snapshot, seed):
    game = a_game(snapshot, seed)
    rng = np.random.default_rng(seed)
    totals = rng.integers(0, game.serving.available + 1)
    tasks = np.zeros_like(snapshot.count)
    for kind, count in enumerate(totals.tolist()):
        for request, n in game.serving.requests_served(kind, 0, count).items():
            tasks[request] += n

    expected = fairness_of(snapshot, tasks, fair_targets(snapshot), 2.0)

    assert game.serving.fairness(totals[None])[0] == pytest.approx(expected, abs=1e-7)


@about("a host that weighed several combinations")
@given(snapshot=contended_snapshots(), seed=st.integers(0, 100))
def test_what_a_host_weighed_can_be_recomputed_from_the_snapshot(snapshot, seed):
    policy = policy_by_name("fuga", {"quota": False, "equilibrium": "sweeps"})
    details = policy.place(snapshot, np.random.default_rng(seed), Budget()).details
    ranking = [snapshot.resources.index(name) for name in details["ranking"]]
    targets = np.array(details["targets"])

    contains(any(len(weighed) > 1 for weighed in details["weighed"].values()))
    for host, weighed in details["weighed"].items():
        capacity, free = snapshot.capacity[int(host)], snapshot.free[int(host)]
        assert sum(each["chosen"] for each in weighed) == 1
        assert len(weighed) <= FugaParameters().eta + 1
        for each in weighed:
            others = each["others"]
            taken = as_array(snapshot, each["counts"])
            amounts = taken @ snapshot.demand
            score = (amounts[ranking] / free[ranking]).min()
            assert each["minimum_utilization"] == pytest.approx(score)
            u = ((capacity - free + amounts) / np.maximum(capacity, 1))[ranking]
            skew = np.sqrt(((u / u.mean() - 1) ** 2).sum()) if u.mean() > 0 else 0.0
            fairness = fairness_of(snapshot, taken + as_array(snapshot, others), targets, 2.0)
            assert each["utility"] == pytest.approx(fairness - skew, abs=1e-6)
        best = max(each["utility"] for each in weighed)
        assert next(e["utility"] for e in weighed if e["chosen"]) >= best - 1e-8


def as_array(snapshot, by_request):
    counts = np.zeros(len(snapshot.count), dtype=np.int64)
    for request, count in by_request.items():
        counts[int(request)] = count
    return counts
