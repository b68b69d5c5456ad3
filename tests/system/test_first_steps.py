"""The README's first steps, word for word, on real guests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lab.cluster import why_not_real
from tests.e2e.web.conftest import a_tab
from tests.servers.browser import a_browser
from tests.servers.running import FUGA, eventually, running_fuga

README = Path(__file__).parents[2] / "README.md"
BEAT = re.compile(r"LAB-GUEST-BEAT up=(\d+)")
READY = re.compile(r"LAB-GUEST-READY uuid=([0-9a-f-]{36})")

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.slow,
    pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real())),
]


def printed_commands() -> list[list[str]]:
    """The commands of the first block under "First steps", without the alias."""
    section = README.read_text().split("## First steps")[1]
    block = section.split("```console")[1].split("```")[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ fuga")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture(scope="module")
def fuga(tmp_path_factory):
    state_dir = tmp_path_factory.mktemp("first") / "state"
    with running_fuga(state_dir, "--driver", "qemu") as fuga:
        yield fuga


def test_the_readme_prints_first_steps():
    assert Path(FUGA).exists()
    words = [command[0] for command in printed_commands()]
    assert words[0] == "request"
    assert {"request", "requests", "vms", "explain", "rounds", "replay", "rm"} <= set(words)


def test_the_first_steps_work_as_printed_and_the_guests_really_boot(fuga):
    commands = printed_commands()
    asking = [command for command in commands if command[0] != "rm"]
    deleting = [command for command in commands if command[0] == "rm"]

    for command in asking:
        fuga.cli(*command)

    with fuga.client() as client:
        vms = client.get("/v1/vms").json()["items"]
    assert sorted((vm["tenant"], vm["vm_type"]) for vm in vms) == (
        [("a", "small")] * 4 + [("b", "large")] * 2
    )
    ids = {vm["id"] for vm in vms}
    eventually(lambda: booted(fuga.state_dir) >= ids)
    for command in deleting:
        fuga.cli(*command)
    eventually(lambda: fuga.sql("select coalesce(sum(committed), 0) from inventories") == [(0,)])
    with fuga.client() as client:
        assert client.get("/v1/vms").json()["items"] == []


def test_a_guest_leaves_its_host_while_it_runs(fuga):
    fuga.cli("request", "small", "--tenant", "a", "--name", "stays", "--wait")
    with fuga.client() as client:
        [before] = client.get("/v1/vms").json()["items"]
    said = eventually(lambda: beats(fuga, "stays-1"), every_s=2.0)

    assert "1 VM moved" in fuga.cli("host", "drain", before["host"], "--move", "--wait").stdout

    with fuga.client() as client:
        [after] = client.get("/v1/vms").json()["items"]
    assert (after["id"], after["observed"]) == (before["id"], "running")
    assert after["host"] != before["host"]
    # Its console goes on where it is now, and the guest has counted on.
    assert eventually(lambda: beats(fuga, "stays-1"), every_s=2.0)[0] > said[-1]
    assert not READY.findall(fuga.cli("console", "stays-1", "--log").stdout)
    fuga.cli("rm", "stays", "--wait")


def test_a_browser_types_on_a_real_guests_console(fuga):
    fuga.cli("request", "small", "--tenant", "a", "--name", "typed", "--wait")
    with fuga.client() as client:
        [vm] = client.get("/v1/vms", params={"name": "typed-1"}).json()["items"]
    eventually(lambda: beats(fuga, "typed-1"), every_s=2.0)
    known = fuga.credentials()

    with a_browser() as browser, a_tab(browser, known["url"]) as tab:
        tab.log_in(known["tenants"]["a"])
        tab.go(f"#/vms/{vm['id']}", "typed-1")
        tab.page.get_by_role("button", name="Open the console").press("Enter")
        screen = tab.page.locator(".xterm-accessibility-tree")
        screen.get_by_text("[fuga: attached]").wait_for()
        tab.page.keyboard.type("is anybody there?")
        tab.page.keyboard.press("Enter")
        screen.get_by_text("LAB-GUEST-HEARD is anybody there?").first.wait_for()
        tab.page.keyboard.press("Control+]")
        tab.page.get_by_role("button", name="Open the console").wait_for()
        assert tab.faults == []
    fuga.cli("rm", "typed", "--wait")


def beats(fuga, vm: str) -> list[int]:
    """How long a guest has been up, as it says on its console again and again; in s."""
    return [int(up) for up in BEAT.findall(fuga.cli("console", vm, "--log").stdout)]


def booted(state_dir: Path) -> set[str]:
    """UUIDs of the guests that have said on their serial console that they are up."""
    logs = (state_dir / "lab").rglob("*.serial")
    return {uuid for log in logs for uuid in READY.findall(log.read_text(errors="replace"))}
