"""Volumes in a browser: created, attached to a VM, detached and removed."""

from __future__ import annotations

from registry import Registry
from tests.e2e.volumes import carry_out
from tests.e2e.web.conftest import Tab


def test_a_volume_is_created_attached_detached_and_removed(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    page = tab.page
    tab.log_in(token_of_a, "#/volumes", "Volumes")
    page.get_by_text("Create a volume").first.click()
    page.get_by_role("textbox", name="Name").fill("data")
    page.get_by_label("Size in GiB").fill("2")
    page.get_by_text("fuga volume create data --size 2GiB").wait_for()
    page.get_by_role("button", name="Create a volume").click()
    row = page.get_by_role("row", name="data")
    row.filter(has_text="unplaced").wait_for()
    [volume] = register.volumes.list(tenant="a").items
    assert volume.size_gib == 2

    page.get_by_role("checkbox", name="Choose data").check()
    assert page.get_by_role("button", name="Detach").is_disabled()
    page.get_by_role("button", name="Attach").click()
    dialog = page.get_by_role("dialog", name="Attach 1 volume")
    dialog.get_by_text("web-1 on host-").wait_for(state="attached")
    [option] = dialog.get_by_role("option").filter(has_text="web-1 on").all()
    dialog.get_by_role("combobox").select_option(value=option.get_attribute("value"))
    dialog.get_by_text("fuga volume attach data web-1").wait_for()
    dialog.get_by_role("button", name="Attach").click()
    row.filter(has_text="creating").wait_for()
    assert carry_out(register, volume.id) == "attached"
    row.filter(has_text="attached").wait_for()
    row.get_by_role("link", name="web-1").wait_for()
    row.get_by_text(f"/dev/disk/by-id/virtio-{volume.id.hex[:20]}").wait_for()

    page.get_by_role("checkbox", name="Choose data").check()
    assert page.get_by_role("button", name="Attach").is_disabled()
    page.get_by_role("button", name="Detach").click()
    dialog = page.get_by_role("dialog", name="Detach 1 volume?")
    dialog.get_by_text("fuga volume detach data").wait_for()
    dialog.get_by_role("button", name="Detach").click()
    row.filter(has_text="detaching").wait_for()
    assert carry_out(register, volume.id) == "available"
    row.filter(has_text="available").wait_for()

    page.get_by_role("checkbox", name="Choose data").check()
    page.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog", name="Remove 1 volume?")
    dialog.get_by_text("fuga volume remove data").wait_for()
    dialog.get_by_role("button", name="Remove").click()
    row.filter(has_text="removing").wait_for()
    assert carry_out(register, volume.id) == "removed"
    page.get_by_text("No volumes.").wait_for()
    assert tab.faults == []


def test_requests_bring_volumes_and_create_new_ones(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    register.volumes.create("old", tenant="a", size_gib=1, actor="test")
    page = tab.page
    tab.log_in(token_of_a, "#/ask", "Request VMs")
    page.get_by_label("Name").fill("db")
    page.get_by_role("combobox", name="Volume").select_option("old")
    page.get_by_label("New volumes").fill("data:2, logs:1GiB")
    line = "fuga request small -n 1 --name db --volume old --new-volume data:2GiB"
    page.get_by_text(f"{line} --new-volume logs:1GiB").wait_for()
    page.get_by_role("button", name="Request", exact=True).click()
    page.get_by_role("heading", level=1, name="db").wait_for()

    waiting = {each.name: each.waiting_vm for each in register.volumes.list(tenant="a").items}
    assert waiting == dict.fromkeys(("old", "data", "logs"), "db-1")
    tab.go("#/volumes", "Volumes")
    row = page.get_by_role("row", name="old")
    row.get_by_text("db-1, which waits for a host").wait_for()
    page.get_by_role("checkbox", name="Choose old").check()
    page.get_by_role("button", name="Detach").click()
    dialog = page.get_by_role("dialog", name="Detach 1 volume?")
    dialog.get_by_role("button", name="Detach").click()
    row.get_by_text("db-1").wait_for(state="detached")
    assert tab.faults == []
