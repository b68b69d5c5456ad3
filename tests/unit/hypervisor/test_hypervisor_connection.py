"""The parent's side, against children that misbehave in ways libvirt would not let us choose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hypervisor import (
    DomainState,
    HostConnection,
    HostDomain,
    HostPoll,
    HostUnreachableError,
    HostVolume,
    Mark,
    OperationFailedError,
    connection,
    wire,
)

GENEROUS_S = 60.0
Children = Callable[[str], None]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Children:
    """Return a function: every child from now on runs this program instead."""

    def use(program: str) -> None:
        script = tmp_path / "child.py"
        script.write_text("import sys, os, time, json\n" + textwrap.dedent(program))
        monkeypatch.setattr(connection, "_CHILD", (sys.executable, str(script)))

    return use


ANSWER_WITH_PID = """
for line in sys.stdin:
    print(json.dumps({"error": "failed", "reason": str(os.getpid()), "code": 7}), flush=True)
"""


def pid_of_child(host: HostConnection) -> int:
    with pytest.raises(OperationFailedError) as caught:
        host.find("x")
    return int(caught.value.reason)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + GENEROUS_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_a_refusal_carries_reason_and_code(child: Children) -> None:
    child(ANSWER_WITH_PID)
    with HostConnection("x:///") as host, pytest.raises(OperationFailedError) as caught:
        host.find("x")

    assert caught.value.operation == "find"
    assert caught.value.code == 7


def test_the_same_child_answers_until_it_is_closed(child: Children) -> None:
    child(ANSWER_WITH_PID)
    with HostConnection("x:///", deadline_s=GENEROUS_S) as host:
        first = pid_of_child(host)
        assert pid_of_child(host) == first
        host.close()
        assert gone(first)
        assert pid_of_child(host) != first


def test_a_silent_child_and_what_it_started_are_killed_at_the_deadline(
    child: Children, tmp_path: Path
) -> None:
    child(
        f"""
        import subprocess
        helper = subprocess.Popen(["sleep", "600"])
        open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{helper.pid}}")
        sys.stdin.readline()
        print(json.dumps({{"error": "failed", "reason": "ready"}}), flush=True)
        time.sleep(600)
        """
    )
    host = HostConnection("x:///")
    with pytest.raises(OperationFailedError, match="ready"):
        host.find("x", deadline_s=GENEROUS_S)

    with pytest.raises(HostUnreachableError, match=r"find: no answer within \d"):
        host.find("x", deadline_s=1.0)

    pid, helper = map(int, (tmp_path / "pids").read_text().split())
    assert gone(pid)
    assert gone(helper) or is_zombie(helper)


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_child_that_dies_is_an_unreachable_host_with_its_last_words(child: Children) -> None:
    child("print('no libvirt here', file=sys.stderr); sys.exit(3)")

    with (
        HostConnection("x:///") as host,
        pytest.raises(HostUnreachableError, match=r"\(3\).*no libvirt here"),
    ):
        host.find("x", deadline_s=GENEROUS_S)


def test_a_child_that_talks_nonsense_is_an_unreachable_host(child: Children) -> None:
    child("print('hello'); sys.stdout.flush(); time.sleep(600)")

    with HostConnection("x:///") as host, pytest.raises(HostUnreachableError, match="find"):
        host.find("x", deadline_s=GENEROUS_S)


def test_a_killed_child_is_replaced_at_the_next_call(child: Children) -> None:
    child(ANSWER_WITH_PID)
    with HostConnection("x:///", deadline_s=GENEROUS_S) as host:
        first = pid_of_child(host)
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)

        assert pid_of_child(host) != first


def test_an_answer_that_came_too_late_is_never_taken_for_the_next_one(child: Children) -> None:
    child(
        """
        for number, line in enumerate(sys.stdin):
            time.sleep(600 if json.loads(line)["args"]["vm_id"] == "slow" else 0)
            print(json.dumps({"error": "failed", "reason": str(number)}), flush=True)
        """
    )
    with HostConnection("x:///", deadline_s=GENEROUS_S) as host:
        with pytest.raises(HostUnreachableError):
            host.find("slow", deadline_s=1.0)
        with pytest.raises(OperationFailedError, match="failed: 0"):
            host.find("fast")


def test_threads_take_turns_and_get_their_own_answers(child: Children) -> None:
    child(
        """
        for line in sys.stdin:
            asked = json.loads(line)["args"]["vm_id"]
            print(json.dumps({"error": "failed", "reason": "for " + asked}), flush=True)
        """
    )
    wrong: list[str] = []

    def ask(name: str) -> None:
        for number in range(50):
            try:
                host.find(f"{name}-{number}")
            except OperationFailedError as error:
                if error.reason != f"for {name}-{number}":
                    wrong.append(error.reason)

    with HostConnection("x:///", deadline_s=GENEROUS_S) as host:
        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_waiting_for_ones_turn_counts_against_the_deadline(child: Children, tmp_path: Path) -> None:
    released = tmp_path / "released"
    child(
        f"""
        sys.stdin.readline()
        while not os.path.exists({str(released)!r}):
            time.sleep(0.01)
        print(json.dumps({{"error": "failed", "reason": "released"}}), flush=True)
        """
    )
    host = HostConnection("x:///", deadline_s=GENEROUS_S)

    def ask() -> None:
        with pytest.raises(OperationFailedError, match="released"):
            host.find("x")

    with ThreadPoolExecutor(1) as asking, host:
        first = asking.submit(ask)
        while not host._lock.locked():
            time.sleep(0.01)

        with pytest.raises(HostUnreachableError, match="busy"):
            host.find("x", deadline_s=0.2)
        released.touch()
        first.result()


def test_a_forked_process_starts_a_child_of_its_own_and_leaves_the_parents_alone(
    child: Children,
) -> None:
    child(ANSWER_WITH_PID)
    with HostConnection("x:///", deadline_s=GENEROUS_S) as host:
        mine = pid_of_child(host)
        reader, writer = os.pipe()
        forked = os.fork()
        if forked == 0:
            try:
                os.write(writer, str(pid_of_child(host)).encode())
                host.close()
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(forked, 0)
        theirs = int(os.read(reader, 100))
        os.close(reader)

        assert theirs != mine
        assert pid_of_child(host) == mine


def test_a_report_crosses_the_wire_unchanged() -> None:
    mark = Mark(vm_id="v", assignment_id="a", generation=2, tenant="ü", round=3)
    domain = HostDomain(
        uuid="v", name="n", state=DomainState.PAUSED, vcpus=1, memory_mib=2, mark=mark
    )
    report = HostPoll(
        hostname="h",
        vcpus=1,
        memory_mib=2,
        disk_gib=3,
        cpu_busy_percent=4.5,
        memory_used_mib=None,
        disk_used_gib=6,
        domains=(domain,),
        volumes=(HostVolume(name="x", capacity_bytes=1, allocation_bytes=0),),
        interfaces=(("eth0", "52:54:00:00:00:01"),),
    )

    line = wire.encode({"ok": report})

    assert line.count(b"\n") == 1
    assert wire.decode_poll(wire.decode(line)["ok"]) == report


@pytest.mark.test_driver
def test_a_uri_that_no_driver_takes_is_an_unreachable_host() -> None:
    with (
        HostConnection("nonsense:///", deadline_s=GENEROUS_S) as host,
        pytest.raises(HostUnreachableError, match="nonsense"),
    ):
        host.report("default")


def test_a_host_that_says_a_lot_went_wrong_is_quoted_in_part(child: Children) -> None:
    child(
        """
        for line in sys.stdin:
            answer = {"error": "failed", "reason": "x" * 10_000_000, "code": 1}
            print(json.dumps(answer), flush=True)
        """
    )
    with HostConnection("x:///") as host, pytest.raises(OperationFailedError) as caught:
        host.find("x", deadline_s=GENEROUS_S)

    assert len(str(caught.value)) < 1_100
    assert "(10000000 characters)" in caught.value.reason


def test_an_answer_without_end_is_an_unreachable_host(child: Children) -> None:
    child("while True: os.write(1, b'x' * 65536)")
    before = memory_kib()

    with HostConnection("x:///") as host, pytest.raises(HostUnreachableError, match="64 MiB"):
        host.find("x", deadline_s=GENEROUS_S)

    assert memory_kib() < before + (200 << 10)


def memory_kib() -> int:
    [line] = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    ]
    return int(line.split()[1])


def test_the_child_of_a_host_has_bounded_memory() -> None:
    program = "from hypervisor.child import single_host_child as one; "
    program += "one.start_event_loop = lambda: bytearray(2 << 30)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; one.main('test:///default', None)"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GENEROUS_S,
        check=False,
    )

    assert b"MemoryError" in done.stderr
