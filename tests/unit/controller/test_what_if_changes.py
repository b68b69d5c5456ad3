"""Which hosts a what-if takes away, and which it adds."""

from __future__ import annotations

from typing import Any

import pytest

from controller.what_ifs.simulations import changed_hosts
from registry.requests import ZONE_LABEL
from simulation import InputError

HOSTS = [
    {"name": "h1", "labels": ["ssd", f"{ZONE_LABEL}east"], "capacity": {"vcpus": 8, "gpu": 1}},
    {"name": "h2", "labels": ["h1"], "capacity": {"vcpus": 4}},
    {"name": "added-1", "labels": ["ssd"], "capacity": {"vcpus": 4}},
]
EVENTS = [{"host": "h1", "at_s": 60}, {"host": "h2", "at_s": 60}]


def changed(**asked: Any) -> dict[str, Any]:
    found = changed_hosts(
        {"hosts": HOSTS, "events": EVENTS}, {"add_hosts": None, "remove_hosts": [], **asked}
    )
    return dict(found)


def names(found: dict[str, Any]) -> list[str]:
    return [host["name"] for host in found["hosts"]]


def test_a_name_takes_away_its_host_alone_and_what_befalls_it() -> None:
    found = changed(remove_hosts=["h1"])

    assert names(found) == ["h2", "added-1"]  # a label may be called like a host
    assert found["events"] == EVENTS[1:]


def test_a_label_takes_away_all_that_carry_it() -> None:
    assert names(changed(remove_hosts=["label=ssd"])) == ["h2"]


def test_a_site_without_a_host_is_refused() -> None:
    with pytest.raises(InputError, match="no host would be left"):
        changed(remove_hosts=["label=ssd", "h2"])


def test_added_hosts_are_like_another_but_for_what_is_said_and_have_names_of_their_own() -> None:
    more = {"count": 2, "like": "h1", "capacity": {"vcpus": 16}, "zone": "west"}

    found = changed(add_hosts=more, remove_hosts=["h1"])

    assert names(found) == ["h2", "added-1", "added+-1", "added+-2"]
    [*_, one, other] = found["hosts"]
    assert one["labels"] == other["labels"] == ["ssd", f"{ZONE_LABEL}west"]
    assert one["capacity"] == {"vcpus": 16, "gpu": 1}


def test_a_host_that_is_gone_meanwhile_is_told() -> None:
    with pytest.raises(InputError, match="h9 is not there any more"):
        changed(add_hosts={"count": 1, "like": "h9", "capacity": None, "zone": None})
