"""Host names that tenants give: as they are, or numbered, and never another one later."""

from __future__ import annotations

import pytest

from registry import InvalidError, Registry
from tests.register import ACTOR, add_request, add_tenant, add_vm_type


def names(registry: Registry) -> dict[str, str | None]:
    return {vm.name: vm.hostname for vm in registry.vms.list(limit=100).items}


@pytest.fixture(autouse=True)
def asker(register: Registry) -> None:
    add_tenant(register)
    add_vm_type(register)


def test_the_only_vm_is_called_just_that_and_later_ones_have_their_number(
    register: Registry,
) -> None:
    request = add_request(register, name="db", hostname="db.example.org")
    assert request.hostname == "db.example.org"
    assert names(register) == {"db-1": "db.example.org"}

    register.requests.change(request.id, count=3, actor=ACTOR)

    assert names(register) == {
        "db-1": "db.example.org",
        "db-2": "db-2.example.org",
        "db-3": "db-3.example.org",
    }


def test_several_vms_are_numbered_and_keep_within_63_characters(register: Registry) -> None:
    add_request(register, 2, name="web", hostname="w" * 63)
    add_request(register, 1, name="plain")

    assert names(register) == {"web-1": "w" * 61 + "-1", "web-2": "w" * 61 + "-2", "plain-1": None}


@pytest.mark.parametrize(
    "wrong",
    ["", "-a", "a-", "a..b", ".a", "a.", "a_b", "ä", "a b", "a\n", "a" * 64, ".".join("a" * 121)],
)
def test_what_is_no_host_name_is_refused(register: Registry, wrong: str) -> None:
    with pytest.raises(InvalidError, match="RFC 1123"):
        add_request(register, hostname=wrong)


@pytest.mark.parametrize(
    "wrong",
    ["1.2.3.4", "12", "web.7", "localhost", "LOCALHOST", "localhost.localdomain", "a.localhost"],
)
def test_no_guest_is_called_like_an_address_or_like_every_machine(
    register: Registry, wrong: str
) -> None:
    with pytest.raises(InvalidError, match="hostname"):
        add_request(register, hostname=wrong)
    add_request(register, hostname="4.example")
