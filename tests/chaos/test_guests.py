"""What guests count is read from their disks and heard on their consoles, wherever they run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import guests
from tests.chaos.consoles import Ears
from tests.chaos.record import Record

VM = "11111111-1111-4111-8111-111111111111"
FIRST, SECOND = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "ab")


class Hosts:
    """Two hosts that write what their guests say, and who hears it."""

    def __init__(self, folder: Path) -> None:
        self.folders = {name: folder / name for name in ("h1", "h2")}
        for each in self.folders.values():
            each.mkdir()
        self.record = Record(folder / "record.jsonl")
        self.ears = Ears(self.folders, self.record)

    def end(self) -> None:
        self.ears.start()
        self.ears.end()

    def log(self, host: str) -> Path:
        return self.folders[host] / f"fuga-{VM}.serial"

    def say(self, host: str, boot: str, *numbers: int) -> None:
        with self.log(host).open("a") as file:
            file.write("".join(f"COUNT {number} {boot}\r\n" for number in numbers))

    def told(self, what: str) -> list[dict[str, Any]]:
        return [each for each in self.record.read() if each["what"] == what]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_guest_that_moves_is_heard_on_both_hosts_once(hosts: Hosts) -> None:
    hosts.say("h1", FIRST, 0, 1)
    hosts.ears.listen()
    hosts.say("h1", FIRST, 2)
    hosts.say("h2", FIRST, 3)
    hosts.ears.listen()
    hosts.log("h1").unlink()
    hosts.end()

    assert hosts.told("twice") == []
    counted = [(each["boot"], each["numbers"]) for each in hosts.told("counted")]
    assert counted == [(FIRST, [0, 1, 2, 3])]


def test_what_a_guest_says_last_is_heard_though_its_log_is_removed_and_begun_anew(
    hosts: Hosts,
) -> None:
    hosts.say("h1", FIRST, 0)
    hosts.ears.listen()
    hosts.say("h1", FIRST, 1)
    hosts.log("h1").unlink()
    hosts.say("h1", SECOND, 0)
    hosts.end()

    counted = {each["boot"]: each["numbers"] for each in hosts.told("counted")}
    assert counted == {FIRST: [0, 1], SECOND: [0]}


def test_two_emulators_that_run_one_guest_say_the_same_twice(hosts: Hosts) -> None:
    hosts.say("h1", FIRST, 0, 1)
    hosts.say("h2", FIRST, 1)
    hosts.ears.listen()

    assert [each["hosts"] for each in hosts.told("twice")] == [["h1", "h2"]]


def test_a_guest_that_runs_on_after_it_was_started_elsewhere(hosts: Hosts) -> None:
    hosts.say("h1", FIRST, 0)
    hosts.ears.listen()
    hosts.say("h2", SECOND, 0)
    for number in range(1, 6):
        hosts.ears.listen()
        hosts.say("h1", FIRST, number)
    hosts.ears.listen()

    assert {tuple(each["hosts"]) for each in hosts.told("twice")} == {("h2", "h1")}


def test_half_a_line_is_heard_when_it_is_whole(hosts: Hosts) -> None:
    hosts.log("h1").write_text("COUNT 1")
    hosts.ears.listen()
    with hosts.log("h1").open("a") as file:
        file.write(f"7 {FIRST}\r\n")
    hosts.end()

    assert [each["numbers"] for each in hosts.told("counted")] == [[17]]


def test_a_count_that_a_disk_refuses_is_noted_once_and_was_not_said(hosts: Hosts) -> None:
    with hosts.log("h1").open("a") as file:
        file.write(f"REFUSED 3 {FIRST} dd: error writing '/dev/vda': Input/output error\r\n")
    hosts.ears.listen()
    hosts.end()

    [refused] = hosts.told("refused")
    assert (refused["vm"], refused["host"]) == (VM, "h1")
    assert refused["said"].endswith("Input/output error")
    assert (hosts.ears.refused, hosts.told("counted")) == (1, [])


def test_what_two_guests_say_of_one_volume(hosts: Hosts) -> None:
    serial = "0123456789abcdef0123"
    for host, numbers in (("h1", (0, 1)), ("h2", (1, 2))):
        with hosts.log(host).open("a") as file:
            file.write("".join(f"VOLUME {serial} {number} {FIRST}\r\n" for number in numbers))
    hosts.log("h2").open("a").write(f"DIRTY {serial} {FIRST}\r\n")
    hosts.end()

    faults = [each["fault"] for each in hosts.told("volume fault")]
    assert faults == ["volume written twice", "dirty volume"]
    assert [each["numbers"] for each in hosts.told("volume counted")] == [[0, 1, 2]]
    assert hosts.ears.heard_of_volumes == 4


@pytest.mark.parametrize(
    ("written", "found"), [([0, 1, 2], [0, 1, 2]), ([0, 2], [0, -1, 2]), ([], [])]
)
def test_counts_are_read_from_an_overlay_whose_image_is_elsewhere(
    tmp_path: Path, written: list[int], found: list[int]
) -> None:
    if shutil.which("qemu-io") is None:
        pytest.skip("qemu-io is not installed")
    disk = tmp_path / "disk.qcow2"
    _run(
        "qemu-img", "create", "-u", "-f", "qcow2", "-b", "/no/base.qcow2", "-F", "qcow2", disk, "1G"
    )
    for number in written:
        count = tmp_path / "count"
        count.write_text(f"COUNT {number} {FIRST}\n".ljust(512, "."))
        at = (64 << 20) + 512 * number
        opened = f"driver=qcow2,file.driver=file,file.filename={disk},backing="
        _run("qemu-io", "--image-opts", opened, "-c", f"write -s {count} {at} 512")

    assert guests.counted(disk) == found


def _run(*words: object) -> None:
    subprocess.run([str(each) for each in words], check=True, capture_output=True)
