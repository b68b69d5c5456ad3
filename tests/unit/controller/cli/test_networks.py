"""`fuga network`: how offers are typed, and what lists say of a network."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.site.networks import guest_traffic_text, parse_user_names, users_text
from controller.terminal.errors import BadInputError

LAN: dict[str, Any] = {"tenant": None, "offered_to": None, "isolated": True, "filtered": True}


@pytest.mark.parametrize(
    ("typed", "names"),
    [("a,b", ["a", "b"]), (" a , b,", ["a", "b"]), ("all", None), ("nobody", [])],
)
def test_offers_are_names_or_all_or_nobody(typed: str, names: list[str] | None) -> None:
    assert parse_user_names(typed) == names


def test_no_name_is_not_taken_for_all() -> None:
    with pytest.raises(BadInputError, match="nobody"):
        parse_user_names(" , ")


@pytest.mark.parametrize(
    ("network", "who", "guests"),
    [
        (LAN, "all", "isolated"),
        (LAN | {"offered_to": []}, "nobody", "isolated"),
        (LAN | {"offered_to": ["a", "b"], "isolated": False}, "a, b", "reach each other"),
        (LAN | {"tenant": "a", "filtered": False}, "a alone", "isolated, NOT FILTERED"),
    ],
)
def test_a_list_says_who_may_use_a_network_and_what_guests_may(
    network: dict[str, Any], who: str, guests: str
) -> None:
    assert (users_text(network), guest_traffic_text(network)) == (who, guests)
