"""Places for many: nobody takes all, and whoever has none finds one."""

from __future__ import annotations

from service.fair_semaphore import FairSemaphore


def taken(places: FairSemaphore, name: str) -> int:
    """Take as many as one gets."""
    count = 0
    while places.take(name):
        count += 1
    return count


def test_each_gets_half_of_what_the_others_leave() -> None:
    places = FairSemaphore(8)

    assert [taken(places, name) for name in "abcde"] == [4, 2, 1, 1, 0]


def test_a_maximum_of_one_name_leaves_places_to_as_many_others() -> None:
    places = FairSemaphore(4, of_a_name=1)

    assert [taken(places, name) for name in "abcde"] == [1, 1, 1, 1, 0]


def test_what_one_gives_back_another_may_have() -> None:
    places = FairSemaphore(8)
    assert taken(places, "greedy") == 4

    places.give_back("greedy")

    assert taken(places, "b") == 3
    assert not places.take("greedy")


def test_of_one_place_anybody_may_have_it() -> None:
    places = FairSemaphore(1)

    assert places.take("a")
    assert not places.take("b")
    places.give_back("a")
    assert places.take("b")
