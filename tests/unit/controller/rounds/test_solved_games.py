"""What is said of the games of a round."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rounds.solved_games import filling_comparisons


def _comparison(chosen: str, amounts: tuple[int, int], distances: tuple[float, float]) -> Any:
    return {
        "resource": "gpus",
        "chosen": chosen,
        "amounts": dict(zip(("game", "filling"), amounts, strict=True)),
        "fair_distances": dict(zip(("game", "filling"), distances, strict=True)),
    }


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (
            _comparison("filling", (22, 24), (0.1, 0.2)),
            "the filling was fuller: 24 against 22 gpus",
        ),
        (_comparison("game", (24, 22), (0.2, 0.1)), "the game was fuller: 24 against 22 gpus"),
        (
            _comparison("filling", (22, 22), (0.2, 0.1)),
            "the filling was fairer: 10.00% against 20.00% off fair, with 22 gpus each",
        ),
        (
            _comparison("game", (22, 22), (0.1, 0.1)),
            "filling was no better than the game: 22 gpus each",
        ),
    ],
)
def test_a_comparison_says_why_one_was_chosen(comparison: Any, sentence: str) -> None:
    (view,) = filling_comparisons({"comparisons": [comparison]})

    assert view.sentence == sentence


@pytest.mark.parametrize("foreign", [7, "text", [1], [{"resource": "gpus"}]])
def test_what_a_plugin_calls_comparisons_is_passed_over(foreign: Any) -> None:
    assert filling_comparisons({"comparisons": foreign}) == ()
