"""Naming what differs between a stored outcome and a recomputed one."""

from __future__ import annotations

from controller.rounds.replay import compare


def test_equal_outcomes_do_not_differ():
    assert (
        compare({"placed": [[0, 1, 2]], "cut": False}, {"placed": [[0, 1, 2]], "cut": False}) == []
    )


def test_rows_that_moved_are_named():
    differences = compare({"placed": [[0, 1, 2]]}, {"placed": [[0, 2, 2]]})

    assert differences == ["placed: 1 rows are missing [[0, 1, 2]], 1 are new [[0, 2, 2]]"]


def test_the_order_of_rows_counts():
    assert compare({"placed": [[0, 1, 2], [1, 1, 1]]}, {"placed": [[1, 1, 1], [0, 1, 2]]})


def test_a_different_value_is_shown_short():
    (difference,) = compare({"details": {"a": "x" * 500}}, {"details": {}})

    assert difference.startswith("details: stored {'a': 'xxx")
    assert len(difference) < 300
