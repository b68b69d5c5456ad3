from __future__ import annotations

import math
from typing import Any

import pytest

from registry.db.names import (
    MAX_AMOUNT,
    check_amounts,
    check_int,
    check_labels,
    check_name,
    check_weight,
)
from registry.errors import InvalidError


@pytest.mark.parametrize("name", ["a", "0", "a-b", "web.1_x", "x" * 63])
def test_names_that_are_allowed(name: str) -> None:
    assert check_name("name", name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", ".a", "A", "ä", "a b", "a/b", "a\n", "x" * 64, "'; drop table vms"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="name"):
        check_name("name", name)


def test_labels_are_ordered_and_each_is_there_once() -> None:
    assert check_labels("labels", ["ssd", "zone=a", "ssd"]) == ("ssd", "zone=a")


@pytest.mark.parametrize("label", ["", " ", "a b", "a\n", "x" * 129, "=a"])
def test_labels_that_are_refused(label: str) -> None:
    with pytest.raises(InvalidError, match="labels"):
        check_labels("labels", [label])


def test_more_labels_than_a_host_may_have_are_refused() -> None:
    with pytest.raises(InvalidError, match="at most"):
        check_labels("labels", [f"l{number}" for number in range(65)])


@pytest.mark.parametrize("value", [0, 11, -1, True, 1.0, "1", None])
def test_numbers_that_are_refused(value: Any) -> None:
    with pytest.raises(InvalidError, match="count"):
        check_int("count", value, 1, 10)


def test_an_amount_of_an_unknown_resource_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidError) as caught:
        check_amounts("resources", {"gpu": 1}, ["vcpus"])

    assert caught.value.field == "resources.gpu"


@pytest.mark.parametrize("amount", [-1, MAX_AMOUNT + 1, 2**63])
def test_amounts_that_could_run_over_are_refused(amount: int) -> None:
    with pytest.raises(InvalidError):
        check_amounts("resources", {"vcpus": amount}, ["vcpus"])


@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf, 1e-9, 1e9])
def test_weights_that_are_refused(weight: float) -> None:
    with pytest.raises(InvalidError, match="weight"):
        check_weight(weight)
