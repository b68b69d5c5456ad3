"""The README's first steps, word for word, on real guests; and what the guide does as they run."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import SCRIPTS
from lab.cluster import real_hosts_obstacle
from tests.e2e.web.conftest import a_tab
from tests.servers.browser import a_browser
from tests.servers.running import FUGA, eventually, running_fuga
from tests.system.guide import Shell, chapter, program

README = Path(__file__).parents[2] / "README.md"
BEAT = re.compile(r"LAB-GUEST-BEAT up=(\d+)")
READY = re.compile(r"LAB-GUEST-READY uuid=([0-9a-f-]{36})")
VMS = 8
HOSTS = 8
#: In place of the guide's program, which logs in to hosts: it restarts a lab host's libvirtd. That
#: is tried again where the machine is so slow that the daemon does not answer in time.
UPDATE = """#!/bin/sh
echo "$1" >>ran
for try in 1 2 3; do
  {scripts}/host-fault {lab} "${{1#host-}}" restart-daemon && exit 0
done
exit 1
"""

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.slow,
    pytest.mark.skipif(real_hosts_obstacle() is not None, reason=str(real_hosts_obstacle())),
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
    # VMs that moved may move again at once, so that balancing ends by itself.
    with running_fuga(state_dir, "--driver", "qemu", FUGA_PLAN_REST_S="0") as fuga:
        yield fuga


@pytest.mark.essential
def test_the_readme_prints_first_steps():
    assert Path(FUGA).exists()
    words = [command[0] for command in printed_commands()]
    assert words[0] == "request"
    assert {"request", "requests", "vms", "explain", "rounds", "replay", "rm"} <= set(words)


@pytest.mark.essential
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


@pytest.mark.long
def test_guests_run_on_while_each_host_is_worked_on_and_vms_are_levelled(fuga, tmp_path):
    shell = Shell(fuga, tmp_path)
    update = program(tmp_path / "update-host", UPDATE, fuga.state_dir / "lab")
    daemons = libvirtds(fuga)
    with only(fuga, "host-1"):
        fuga.cli("request", "tiny", "-n", str(VMS), "--tenant", "a", "--name", "stays", "--wait")
    vms = [vm["name"] for vm in placed(fuga)]
    assert {vm["host"] for vm in placed(fuga)} == {"host-1"}
    said = last_beats(fuga, vms)

    *one_by_one, rolling, listing = chapter("Maintenance of hosts", host="host-")
    assert [line.split()[1] for line in one_by_one] == ["host", "vms", "host"]
    emptied, on_it, _ = [shell.type(line) for line in one_by_one]

    assert f"is done: {VMS} VMs moved" in emptied
    assert "no such VMs" in on_it
    said = went_on(fuga, vms, said)

    # By halves, which is quicker than the guide's one host after the other.
    rolled = shell.type(rolling.replace("./update-host", f"{update} --at-once 4"))

    assert "is done: 8 hosts" in rolled
    assert set((tmp_path / "ran").read_text().split()) == {f"host-{n}" for n in range(1, 9)}
    assert len({*daemons, *libvirtds(fuga)}) == 2 * HOSTS
    assert "done" in shell.type(listing)
    with fuga.client() as operator:
        hosts = operator.get("/v1/hosts").json()["items"]
    assert {(host["admin"], host["health"]) for host in hosts} == {("active", "up")}

    # The hosts that were worked on last are empty now.
    proposing, approving, again = chapter("Balancing")
    plan = re.match(r"plan (\S+): balance, proposed", shell.type(proposing))[1]
    levelled = shell.type(approving.replace("ID", plan))
    assert int(re.search(rf"plan {plan} is done: (\d+) VM", levelled)[1]) > 0
    assert "no useful move" in shell.type(again)

    went_on(fuga, vms, said)
    assert {vm["observed"] for vm in placed(fuga)} == {"running"}
    with fuga.client() as operator:
        moves = operator.get("/v1/moves", params={"limit": 500}).json()["items"]
    assert {move["state"] for move in moves} == {"moved"}
    fuga.cli("rm", "stays", "--wait")


@pytest.mark.long
def test_a_request_that_starves_is_let_in_by_a_move(fuga, tmp_path):
    """The example of docs/mechanisms.md: three hosts, two VMs on each; one fits on none."""
    shell, three = Shell(fuga, tmp_path), ("host-2", "host-3", "host-4")
    fuga.cli("type", "add", "note", "vcpus=1", "memory_mib=4096", "disk_gib=5")
    fuga.cli("type", "add", "wide", "vcpus=4", "memory_mib=28672", "disk_gib=5")
    with only(fuga, *three):
        # These have 8 GiB: two fit on each, and none is full once they have 32.
        fuga.cli("request", "note", "-n", "6", "--tenant", "a", "--name", "on", "--wait")
        for host in three:
            fuga.cli("host", "set", host, "--override", "vcpus=8", "--override", "memory_mib=32768")
        fuga.cli("request", "wide", "--tenant", "b", "--name", "db")

        explaining, proposing, approving = chapter("Room for a request that waits")
        eventually(lambda: "too full: memory_mib is short on 3 of 3" in shell.type(explaining))
        proposed = shell.type(proposing)
        assert "lets in 1 on host-" in proposed
        plan = re.match(r"plan (\S+): room, proposed", proposed)[1]
        assert "is done: 1 VM moved" in shell.type(approving.replace("ID", plan))

        running = {"observed": "running", "vm_type": "wide"}
        eventually(lambda: any(running.items() <= vm.items() for vm in placed(fuga)))
        assert len(placed(fuga)) == 7
    fuga.cli("rm", "on", "db", "--wait")


@pytest.mark.long
def test_a_browser_types_on_a_real_guests_console(fuga):
    fuga.cli("request", "small", "--tenant", "a", "--name", "typed", "--wait")
    with fuga.client() as client:
        [vm] = client.get("/v1/vms", params={"name": "typed-1"}).json()["items"]
    eventually(lambda: beats(fuga, "typed-1"), every_s=2.0)
    known = fuga.credentials()

    with a_browser() as browser, a_tab(browser, known["url"]) as tab:
        tab.log_in(known["tenants"]["a"], f"#/vms/{vm['id']}", "typed-1")
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


def last_beats(fuga, vms: list[str]) -> dict[str, int]:
    """The last uptime that each guest told, once it told one."""
    return {vm: eventually(lambda vm=vm: beats(fuga, vm), every_s=2.0)[-1] for vm in vms}


def went_on(fuga, vms: list[str], said: dict[str, int]) -> dict[str, int]:
    """Where it is now, each guest has counted on since, and did not start over."""
    now = last_beats(fuga, vms)
    for vm in vms:
        log = fuga.cli("console", vm, "--log").stdout
        first = int(BEAT.search(log)[1])
        assert (first > said[vm], READY.findall(log)) == (True, []), (vm, said[vm], log)
    return now


def placed(fuga) -> list[dict]:
    with fuga.client() as operator:
        return operator.get("/v1/vms").json()["items"]


@contextmanager
def only(fuga, *names: str) -> Iterator[None]:
    """Within, only these hosts take VMs."""
    others = {f"host-{n}" for n in range(1, HOSTS + 1)} - {*names}
    for name in sorted(others):
        fuga.cli("host", "drain", name)
    yield
    for name in sorted(others):
        fuga.cli("host", "activate", name)


def libvirtds(fuga) -> list[str]:
    """The process of each host's libvirtd."""
    lab = fuga.state_dir / "lab" / "hosts"
    asks = f'. "{SCRIPTS}/lib.sh"; for n in $(seq {HOSTS}); do daemon_pid "{lab}/$n"; echo; done'
    return subprocess.check_output(["bash", "-c", asks], text=True).split()


def booted(state_dir: Path) -> set[str]:
    """UUIDs of the guests that have said on their serial console that they are up."""
    logs = (state_dir / "lab").rglob("*.serial")
    return {uuid for log in logs for uuid in READY.findall(log.read_text(errors="replace"))}
