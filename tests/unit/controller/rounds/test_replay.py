"""Naming what differs between a stored outcome and a recomputed one."""

from __future__ import annotations

import time

from controller.rounds.replay import outcome_differences


def test_equal_outcomes_do_not_differ():
    assert (
        outcome_differences(
            {"placed": [[0, 1, 2]], "cut": False}, {"placed": [[0, 1, 2]], "cut": False}
        )
        == []
    )


def test_rows_that_moved_are_named():
    differences = outcome_differences({"placed": [[0, 1, 2]]}, {"placed": [[0, 2, 2]]})

    assert differences == ["placed: 1 rows are missing [[0, 1, 2]], 1 are new [[0, 2, 2]]"]


def test_a_large_round_that_was_decided_otherwise_is_compared_at_once():
    stored, recomputed = ([[row, host, 1] for row in range(20_000)] for host in (0, 1))
    started = time.process_time()

    (difference,) = outcome_differences({"placed": stored}, {"placed": recomputed})

    assert difference.startswith("placed: 20000 rows are missing")
    assert time.process_time() - started < 2  # pair by pair: 12 s


def test_the_order_of_rows_counts():
    assert outcome_differences(
        {"placed": [[0, 1, 2], [1, 1, 1]]}, {"placed": [[1, 1, 1], [0, 1, 2]]}
    )


def test_a_different_value_is_shown_short():
    (difference,) = outcome_differences({"details": {"a": "x" * 500}}, {"details": {}})

    assert difference.startswith("details: stored {'a': 'xxx")
    assert len(difference) < 300
