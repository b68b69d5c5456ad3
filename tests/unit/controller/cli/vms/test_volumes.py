"""`fuga volume` as a person types it, and what it prints."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.vms.volumes import COLUMNS
from controller.session import polling
from controller.terminal.errors import BadInputError
from controller.terminal.output import text
from controller.terminal.sizes import parse_size_gib
from controller.terminal.tables import columns_with_room, render_lines
from tests.fakes.http_api import HttpApi
from tests.unit.controller.cli.api_documents import VM_ID, Fuga, a_request, a_vm

VOLUME_ID = "0193a444-0000-7000-8000-00000000beef"
PATH = f"/v1/volumes/{VOLUME_ID}"


def a_volume(**changes: Any) -> dict[str, Any]:
    return {
        "id": VOLUME_ID,
        "name": "data",
        "tenant": "a",
        "size_gib": 100,
        "protected": False,
        "state": "unplaced",
        "host": None,
        "vm_id": None,
        "vm": None,
        "waiting_vm": None,
        "last_error": None,
        "trouble": None,
        "created_at": "2026-01-01T00:00:00Z",
        "removed_at": None,
        "serial": "0193a444000070008000",
        **changes,
    }


def with_vm(state: str, **changes: Any) -> dict[str, Any]:
    return a_volume(
        **{"host": "host-1", "vm_id": VM_ID, "vm": "web-1"} | {"state": state} | changes
    )


@pytest.fixture(autouse=True)
def site(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_POLL_EVERY_S", 0.01)
    api.on_list("/v1/requests", a_request(count=1))
    api.on_list("/v1/vms", a_vm())
    api.on_list("/v1/volumes", a_volume())
    api.on("GET", f"/v1/vms/{VM_ID}", a_vm())
    api.on("GET", PATH, a_volume())
    api.on("POST", "/v1/volumes", a_volume(), status=201)
    api.on("POST", f"{PATH}/attach", with_vm("creating"), status=202)
    api.on("POST", f"{PATH}/detach", with_vm("detaching"), status=202)
    api.on("DELETE", PATH, a_volume(state="removing", host="host-1"), status=202)


@pytest.mark.parametrize(
    ("given", "gib"),
    [
        *(("100GiB", 100), ("100G", 100), ("100g", 100), ("100", 100), ("1TiB", 1024)),
        *(("2T", 2048), (" 5 GiB ", 5), ("1", 1)),
    ],
)
def test_a_size_is_gib_unless_it_says_tib(given: str, gib: int) -> None:
    assert parse_size_gib("--size", given) == gib


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("0", "'0' is less than 1 GiB"),
        ("-1", "'-1' is less than 1 GiB"),
        ("1.5", "'1.5' is no whole number"),
        ("1,5GiB", "'1,5GiB' is no whole number"),
        ("10MB", "'10MB' has the unit 'MB'"),
        ("10GB", "'10GB' has the unit 'GB'"),
        *((each, "is no size") for each in ("", "big", "1e3", "GiB", "0x10", "1 2", "٣")),
    ],
)
def test_another_size_is_refused_with_what_to_type(
    api: HttpApi, fuga: Fuga, given: str, why: str
) -> None:
    ended = fuga("volume", "create", "data", f"--size={given}")

    assert ended.status == 2
    assert why in ended.err
    assert "type 100GiB, 100G or 1TiB; a number alone is GiB" in ended.err
    assert api.calls("POST", "/v1/volumes") == []
    with pytest.raises(BadInputError):
        parse_size_gib("--size", given)


def test_a_volume_is_created_for_a_tenant(api: HttpApi, fuga: Fuga) -> None:
    ended = fuga("volume", "create", "data", "--size", "1TiB", "--tenant", "a")

    (call,) = api.calls("POST", "/v1/volumes")
    assert call.body == {"name": "data", "size_gib": 1024, "tenant": "a"}
    assert call.headers["Idempotency-Key"]
    assert "volume data (0000beef): 100 GiB for tenant a" in ended.out


def test_a_volume_shows_the_path_of_its_disk_in_the_guest(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/volumes", with_vm("attached"))

    ended = fuga("volume", "show", "data")

    assert ended.out.splitlines() == [
        "volume data (0000beef): 100 GiB of tenant a, attached",
        "vm web-1 on host host-1",
        "in the guest: /dev/disk/by-id/virtio-0193a444000070008000",
    ]


def test_a_volume_shows_the_vm_that_waits_with_it(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/volumes", a_volume(waiting_vm="db-1"))

    ended = fuga("volume", "show", "data")

    assert ended.out.splitlines()[1:] == ["VM db-1 waits for a host with it"]


def test_a_request_brings_volumes(api: HttpApi, fuga: Fuga) -> None:
    api.on("POST", "/v1/requests", a_request(count=1), status=201)

    fuga("request", "small", "--volume", "data", "--volume=logs", "--new-volume", "tmp:1TiB")

    (asked,) = api.calls("POST", "/v1/requests")
    assert asked.body["volumes"] == ["data", "logs"]
    assert asked.body["new_volumes"] == [{"name": "tmp", "size_gib": 1024}]
    for given in ("tmp", ":5", "tmp:"):
        ended = fuga("request", "small", f"--new-volume={given}")
        assert (ended.status, "--new-volume" in ended.err, "type" in ended.err) == (2, True, True)


def test_a_volume_is_found_by_name_and_by_parts_of_its_id(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/volumes", a_volume(), a_volume(id=VM_ID, name="beef", tenant="b"))

    for typed in ("data", VOLUME_ID, "0000beef"):
        assert fuga("volume", "show", typed).status == 0
    ambiguous = fuga("volume", "show", "beef")
    assert ambiguous.status == 2
    assert f"data of a: {VOLUME_ID}" in ambiguous.err
    for typed in ("dat", "ffff", "", "é", "x" * 500):
        ended = fuga("volume", "show", "--", typed)
        assert (ended.status, "no volume with name or id" in ended.err) == (2, True)


def test_names_are_looked_up_within_the_tenant(api: HttpApi, fuga: Fuga) -> None:
    ended = fuga("volume", "attach", "data", "web-1", "--tenant", "a")

    assert ended.status == 0
    assert [each.query["tenant"] for each in api.calls("GET", "/v1/volumes")] == ["a"]
    assert [each.query["tenant"] for each in api.calls("GET", "/v1/vms")] == ["a"]
    assert api.calls("POST", f"{PATH}/attach")[0].body == {"vm": VM_ID}


def test_a_request_has_no_volumes(api: HttpApi, fuga: Fuga) -> None:
    ended = fuga("volume", "attach", "data", "web")

    assert ended.status == 2
    assert "'web' is a request, not a VM" in ended.err
    assert api.calls("POST", f"{PATH}/attach") == []


# ---- --wait ---------------------------------------------------------------------------


def test_wait_ends_when_the_volume_is_attached(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", PATH, with_vm("creating"), with_vm("attaching"), with_vm("attached"))

    ended = fuga("volume", "attach", "data", "web-1", "--wait")

    assert ended.status == 0
    assert "100 GiB of tenant a, attached" in ended.out
    assert ended.err.splitlines() == ["volume data is creating", "volume data is attaching"]


@pytest.mark.parametrize("state", ["available", "unplaced"])
def test_wait_for_an_attachment_that_is_given_up_says_why(
    api: HttpApi, fuga: Fuga, state: str
) -> None:
    api.on("GET", PATH, with_vm("attaching"), a_volume(state=state, last_error="no slot is free"))

    ended = fuga("volume", "attach", "data", "web-1", "--wait")

    assert ended.status == 1
    assert f"fuga: volume data is {state}: no slot is free" in ended.err


def test_wait_for_a_detachment_that_the_guest_does_not_answer_says_why(
    api: HttpApi, fuga: Fuga
) -> None:
    kept = with_vm("attached", last_error="the guest did not release the disk")
    api.on("GET", PATH, with_vm("detaching"), with_vm("attaching"), kept)

    ended = fuga("volume", "detach", "data", "--wait")

    assert ended.status == 1
    assert "volume data is attached: the guest did not release the disk" in ended.err


def test_wait_for_a_detachment_and_a_removal(api: HttpApi, fuga: Fuga) -> None:
    api.on("GET", PATH, with_vm("detaching"), a_volume(state="available", host="host-1"))
    assert fuga("volume", "detach", "data", "--wait").status == 0

    api.on("GET", PATH, a_volume(state="removing"), a_volume(state="removed"))
    ended = fuga("volume", "remove", "data", "--wait", "-o", "json")
    assert (ended.status, ended.json["state"]) == (0, "removed")


def test_wait_ends_at_its_timeout_and_says_that_the_change_continues(
    api: HttpApi, fuga: Fuga
) -> None:
    api.on("GET", PATH, with_vm("attaching", last_error="host-1 does not answer"))

    ended = fuga("volume", "attach", "data", "web-1", "--wait", "--timeout", "0.05")

    assert ended.status == 3
    assert "volume data is attaching, last error: host-1 does not answer" in ended.err
    assert "The change continues: `fuga volume show data` shows it." in ended.err


# ---- deleting VMs ---------------------------------------------------------------------


def test_rm_says_which_volumes_stay(api: HttpApi, fuga: Fuga) -> None:
    volumes = [with_vm("attached", name=name) for name in ("data", "logs")]
    api.on_list("/v1/volumes", *volumes, a_volume(name="spare"))
    api.on("DELETE", f"/v1/vms/{VM_ID}", a_vm(desired="deleted"), status=202)
    request = a_request(count=1)
    api.on("DELETE", f"/v1/requests/{request['id']}", request | {"vms_leaving": 1}, status=202)

    assert "it is being removed; volumes data and logs stay\n" in fuga("rm", "web-1").out
    assert api.calls("GET", "/v1/volumes")[0].query["vm"] == VM_ID, "not all of the tenant"
    assert "1 VMs are being removed; volumes data and logs stay\n" in fuga("rm", "web").out


def test_rm_of_vms_without_volumes_says_nothing_of_them(api: HttpApi, fuga: Fuga) -> None:
    api.on("DELETE", f"/v1/vms/{VM_ID}", a_vm(desired="deleted"), status=202)

    assert "volume" not in fuga("rm", "web-1").out


# ---- tables ---------------------------------------------------------------------------


def test_a_list_lines_up_at_80_columns_with_what_matters() -> None:
    rows = [
        with_vm("attached", name="database-of-the-shop", vm="web-frontend-2026-12"),
        a_volume(name="d", size_gib=1 << 20),
    ]
    headings = [each.heading for each in COLUMNS]
    cells = [[text(each.value(row)) for each in COLUMNS] for row in rows]

    kept = columns_with_room(COLUMNS, headings, cells, 80)
    lines = list(
        render_lines(
            [COLUMNS[place] for place in kept],
            [[row[place] for place in kept] for row in (headings, *cells)],
            80,
            bold=False,
        )
    )

    assert [headings[place] for place in kept][:5] == ["name", "size", "state", "vm", "host"]
    assert max(map(len, lines)) <= 80
    assert len(lines) == 4
    assert [line.index("attached" if "shop" in line else "unplaced") for line in lines[2:]] == [
        lines[0].index("state")
    ] * 2


def test_a_list_has_a_column_of_errors_where_there_are_some(api: HttpApi, fuga: Fuga) -> None:
    assert "last error" not in fuga("volume", "list").out
    waits = with_vm("detaching", trouble="its host does not answer", last_error="timeout")
    api.on_list("/v1/volumes", waits, a_volume(name="logs", last_error="no space"))
    api.on("GET", PATH, waits)

    listed = fuga("volume", "list").out

    assert "last error" in listed
    assert ["its host does" in listed, "no space" in listed, "timeout" in listed] == [1, 1, 0]
    assert "its host does not answer\nlast error: timeout\n" in fuga("volume", "show", "data").out


def test_a_volume_is_protected(api: HttpApi, fuga: Fuga) -> None:
    protected = a_volume(protected=True)
    api.on("PATCH", PATH, protected)
    assert "protected" not in fuga("volume", "list").out

    assert "unplaced, protected\n" in fuga("volume", "set", "data", "--protected").out

    assert api.calls("PATCH", PATH)[0].body == {"protected": True}
    fuga("volume", "set", "data", "--no-protected")
    assert api.calls("PATCH", PATH)[1].body == {"protected": False}
    assert "give --[no-]protected" in fuga("volume", "set", "data").err
    api.on_list("/v1/volumes", protected, a_volume(name="logs"))
    assert "protected" in fuga("volume", "list").out


def test_a_tenant_without_volumes_reads_how_to_create_one(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/volumes")

    assert "fuga volume create data --size 100GiB" in fuga("volume", "list").out
    assert fuga("volume", "list", "--state", "removed").out == "no such volumes.\n"
