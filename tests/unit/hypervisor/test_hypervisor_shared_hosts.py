"""Processes that many hosts share, against hosts that hang in them, kill them or freeze them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hypervisor import (
    HostSilentError,
    HostUnreachableError,
    OperationFailedError,
    SharedHosts,
    connection,
    shared_child,
    shared_hosts,
    wire,
)
from hypervisor.shared_child import SharedChild
from hypervisor.shared_hosts import SharedHost
from tests.servers.running import eventually

#: For looks that end by an answer or a death: no load makes them late.
PATIENT_S = 60.0
#: For looks that end because nobody answers.
HURRIED_S = 1.0
#: Looks at hosts as their names say, and notes that it does. Answers with its pid, as a
#: refusal's reason.
MANY = """
import json, os, signal, sys, threading, time
telling = threading.Lock()
def tell(answer):
    with telling:
        sys.stdout.write(json.dumps(answer) + "\\n")
        sys.stdout.flush()
def beat():
    while True:
        tell({"id": 0})
        time.sleep(0.1)
threading.Thread(target=beat, daemon=True).start()
forgotten = []
for line in sys.stdin:
    request = json.loads(line)
    if "forget" in request:
        continue
    marker = request["uri"].partition("//")[2]
    kind = open(marker).read() if marker else "well"
    if marker:
        open(marker + ".begun", "w").close()
    if kind == "hangs":
        continue
    if kind == "kills":
        print("poisoned", file=sys.stderr, flush=True)
        os._exit(7)
    if kind == "freezes":
        os.kill(os.getpid(), signal.SIGSTOP)
    tell({"id": request["id"], "error": "failed", "reason": str(os.getpid()), "code": 1})
os._exit(0)
"""
ALONE = """
import json, os, sys, time
marker = sys.argv[1].partition("//")[2]
for line in sys.stdin:
    kind = open(marker).read() if marker else "well"
    if kind == "kills":
        os._exit(7)
    if kind != "well":
        time.sleep(600)
    print(json.dumps({"error": "failed", "reason": f"alone {os.getpid()}"}), flush=True)
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedHosts]:
    for name, program in (("many", MANY), ("alone", ALONE)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(program))
    alone = (sys.executable, str(tmp_path / "alone.py"))
    monkeypatch.setattr(connection, "_CHILD", alone)
    command = (sys.executable, str(tmp_path / "many.py"))
    made = SharedHosts(deadline_s=PATIENT_S, hosts_per_child=3, command=command)
    yield made
    made.close()


@pytest.fixture
def uri(tmp_path: Path) -> Callable[[str], str]:
    """Return the URI of a host that is of a kind, which its file says at each look."""

    def make(kind: str) -> str:
        marker = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
        marker.write_text(kind)
        return f"x://{marker}"

    return make


@contextmanager
def hurried(hosts: SharedHosts) -> Iterator[None]:
    """Have looks that begin within wait a short time for answers that do not come."""
    hosts.deadline_s = HURRIED_S
    yield
    hosts.deadline_s = PATIENT_S


def marker_of(uri: str) -> Path:
    return Path(uri.partition("//")[2])


def wait_until_begun(uri: str) -> None:
    """Wait until a process looks at a host, and knows what the host does to it.

    That a look was handed to a process says neither: on a busy machine the process may read
    later what the host is.
    """
    eventually(Path(f"{marker_of(uri)}.begun").exists, every_s=0.02)


def process_of(look: Callable[[], object]) -> str:
    """Return which process a host was looked at in, when it is one that answers."""
    with pytest.raises(OperationFailedError) as caught:
        look()
    return caught.value.reason


def test_hosts_share_processes_and_no_more_than_so_many(hosts: SharedHosts) -> None:
    seen = [process_of(partial(hosts.host("x:").report, "p")) for _ in range(7)]

    assert len(set(seen)) == 3
    assert os.getpid() not in map(int, seen)


def test_a_host_that_hangs_is_looked_at_apart_until_it_answers(
    hosts: SharedHosts, uri: Callable[[str], str]
) -> None:
    hanging_uri = uri("hangs")
    well, hanging = hosts.host("x:"), hosts.host(hanging_uri)
    shared = process_of(lambda: well.report("p"))
    with hurried(hosts), pytest.raises(HostSilentError, match=r"no answer within 1\.0 s"):
        hanging.report("p")

    assert process_of(lambda: well.report("p")) == shared  # nothing was killed
    with hurried(hosts), pytest.raises(HostSilentError):
        hanging.report("p")
    marker_of(hanging_uri).write_text("well")
    apart = process_of(lambda: hanging.report("p"))
    back = process_of(lambda: hanging.report("p"))

    assert apart != shared
    assert back == shared
    assert process_of(lambda: well.report("p")) == shared


def test_hosts_that_hang_at_the_same_time_hang_in_one_process_which_is_ended(
    hosts: SharedHosts, uri: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SharedChild] = []

    def start(*args: Any, **kwargs: Any) -> SharedChild:
        started.append(SharedChild(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(shared_hosts, "SharedChild", start)
    hanging = [hosts.host(uri("hangs")) for _ in range(3)]
    well = hosts.host("x:")
    process_of(lambda: well.report("p"))

    def look(number: int) -> None:
        with pytest.raises(HostSilentError):
            hanging[number].report("p")

    with ThreadPoolExecutor(3) as looking, hurried(hosts):
        list(looking.map(look, range(3)))
        before = len(started)
        list(looking.map(look, range(3)))

    (apart,) = started[before:]
    assert process_of(lambda: well.report("p"))
    eventually(lambda: apart.is_gone)


def children() -> set[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {
        int(pid) for task in path.parents[1].glob("*/children") for pid in task.read_text().split()
    }


def test_a_process_is_replaced_before_what_hangs_in_it_gathers(
    hosts: SharedHosts, uri: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypervisor.shared_hosts._MAX_ABANDONED", 2)
    well, hanging = hosts.host("x:"), [hosts.host(uri("hangs")) for _ in range(2)]
    shared = process_of(lambda: well.report("p"))

    for each in hanging:
        with hurried(hosts), pytest.raises(HostSilentError):
            each.report("p")

    assert process_of(lambda: well.report("p")) != shared
    eventually(lambda: int(shared) not in children())


def look_at_who_freezes(hosts: SharedHosts, host: SharedHost, uri: str) -> None:
    """Look at a host that freezes the shared process, and is silent in its own one."""
    Path(f"{marker_of(uri)}.begun").unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as looking:
        look = looking.submit(host.report, "p")
        wait_until_begun(uri)
        with hurried(hosts), pytest.raises(HostUnreachableError):
            look.result()


@contextmanager
def soon_stalled() -> Iterator[None]:
    """Have processes started within seem to stand still after a moment without a beat.

    Not those whose answers a test compares: a busy machine may keep a process from beating.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_child, "_STALLED_AFTER_S", 0.4)
        yield


@pytest.mark.parametrize("kind", ["kills", "freezes"])
def test_who_ends_a_process_for_all_is_looked_at_alone_and_costs_nobody_a_look(
    hosts: SharedHosts, uri: Callable[[str], str], kind: str
) -> None:
    bad_uri = uri(kind)
    well, bad = hosts.host("x:"), hosts.host(bad_uri)

    def look_at_the_bad_one() -> None:
        if kind == "freezes":
            look_at_who_freezes(hosts, bad, bad_uri)
        else:
            with pytest.raises(HostUnreachableError):
                bad.report("p")

    with soon_stalled():
        shared = process_of(lambda: well.report("p"))
        look_at_the_bad_one()
    again = process_of(lambda: well.report("p"))
    with soon_stalled():
        look_at_the_bad_one()

    assert again != shared
    assert "alone" not in again
    assert process_of(lambda: well.report("p")) == again


def test_who_was_looked_at_when_a_process_ended_is_looked_at_again_at_once(
    hosts: SharedHosts, uri: Callable[[str], str]
) -> None:
    hanging_uri = uri("hangs")
    well, unlucky = hosts.host("x:"), hosts.host(hanging_uri)
    shared = int(process_of(lambda: well.report("p")))
    with ThreadPoolExecutor(1) as looking:
        found = looking.submit(process_of, lambda: unlucky.report("p"))
        wait_until_begun(hanging_uri)
        marker_of(hanging_uri).write_text("well")

        os.kill(shared, signal.SIGKILL)

        assert found.result().startswith("alone ")
    assert process_of(lambda: unlucky.report("p")) == process_of(lambda: well.report("p"))


def test_looks_fail_once_it_is_closed(hosts: SharedHosts, uri: Callable[[str], str]) -> None:
    hanging_uri = uri("hangs")
    hanging, before = hosts.host(hanging_uri), children()
    failed: list[Exception] = []

    def look() -> None:
        try:
            hanging.report("p")
        except HostUnreachableError as error:
            failed.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    wait_until_begun(hanging_uri)
    hosts.close()
    looking.join(60)

    assert len(failed) == 1
    with pytest.raises(HostUnreachableError):
        hanging.report("p")
    eventually(lambda: not children() - before)


def run_many(prelude: str, *requests: dict[str, object]) -> subprocess.CompletedProcess[bytes]:
    start = "from hypervisor.child import multi_host_child as many"
    program = f"{start}\n{textwrap.dedent(prelude)}\nmany.main()"
    return subprocess.run(
        [sys.executable, "-c", program],
        input=b"".join(wire.encode(request) for request in requests),
        capture_output=True,
        timeout=60,
        check=False,
    )


def a_request(number: int, uri: str) -> dict[str, object]:
    return {"id": number, "host": number, "uri": uri, "credential": None, "args": {}}


def test_the_process_that_hosts_share_has_bounded_memory() -> None:
    done = run_many("many.start_event_loop = lambda: bytearray(2 << 30)")

    assert b"MemoryError" in done.stderr


def test_a_host_that_fills_the_memory_ends_the_process_and_is_no_other_hosts_error() -> None:
    prelude = """
        class Host:
            def __init__(self, uri, credential): pass
            def perform(self, op, args): return len(bytearray(2 << 30))
            def close(self): pass
        many.LibvirtHost, many.start_event_loop = Host, lambda: None
        """

    done = run_many(prelude, a_request(1, "x:"), {"forget": 1}, {"forget": 2})

    assert b'"id":1' not in done.stdout
    assert done.returncode == 3


def test_what_nobody_thought_of_is_told_of_its_host_alone() -> None:
    prelude = """
        import threading
        answered = threading.Semaphore(0)
        class Host:
            def __init__(self, uri, credential): self.uri = uri
            def perform(self, op, args):
                return {"bad": [][0]} if self.uri == "bad:" else self.uri
            def close(self): pass
        send = many._PolledHosts.send
        def send_and_count(hosts, answer):
            send(hosts, answer)
            if answer["id"]:
                answered.release()
        many.LibvirtHost, many.start_event_loop = Host, lambda: None
        many._PolledHosts.send = send_and_count
        many._PolledHosts.close = lambda self: [answered.acquire(timeout=60) for _ in range(2)]
        many._GOODBYE_S = 60
        """

    done = run_many(prelude, a_request(1, "bad:"), a_request(2, "good:"))

    shown = {line["id"]: line for line in map(wire.decode, done.stdout.splitlines())}
    assert shown[1] == {
        "id": 1,
        "error": "unreachable",
        "reason": "IndexError: list index out of range",
    }
    assert shown[2] == {"id": 2, "ok": "good:"}
