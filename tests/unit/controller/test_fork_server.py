"""Children that are forked from a process that has imported what they need."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.errors import PolicyFailedError
from controller.fork_server import client
from controller.fork_server.children import Child, make_nice, start_interpreter
from controller.fork_server.client import ForkServer, ForkServerError, ForkServerLateError
from controller.rounds.policy_process import PRELOADED, PolicyProcess
from tests.round_inputs import some_inputs

FORKED = "tests.fakes.forked"
PATIENCE_S = 120.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer([FORKED])
    yield server
    server.close()


@pytest.fixture(scope="module")
def policies() -> Iterator[ForkServer]:
    server = ForkServer(PRELOADED)
    yield server
    server.close()


def forked(server: ForkServer) -> Child:
    return server.fork(FORKED, time.monotonic() + PATIENCE_S)


def ask(child: Child, line: str) -> str:
    child.stdin.write(line.encode() + b"\n")
    return child.stdout.readline().decode().strip()


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def until(seen: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not (found := seen()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_nothing_runs_before_the_first_call_and_nothing_after_the_end(server: ForkServer) -> None:
    assert server.pid is None

    child = forked(server)
    pids = [server.pid, child.pid]
    server.close()

    assert not any(pid and lives(pid) for pid in pids)
    assert child.close() == -signal.SIGKILL
    with pytest.raises(ForkServerError, match="was closed"):
        forked(server)
    server.warm_up()
    assert server.pid is None


def test_each_call_has_a_child_of_its_own_of_one_server(server: ForkServer) -> None:
    server.warm_up()
    children = [forked(server) for _ in range(3)]

    assert [ask(child, "parent") for child in children] == [str(server.pid)] * 3
    assert len({child.pid for child in children}) == 3
    # Standard ones, and what reads the folder: no line of another child, no way to the server.
    assert ask(children[2], "descriptors") == "0 1 2 3"

    for child in children:
        child.close()


FAILING = """
import os
def failing(name, call):
    def fails_once(*arguments):
        try:
            os.unlink({flag!r})
        except OSError:
            return call(*arguments)
        raise OSError(11, "as a file said")
    setattr(os, name, fails_once)
failing({name!r}, getattr(os, {name!r}))
"""


@pytest.mark.parametrize("name", ["fork", "pidfd_open", "pipe"])
def test_a_fork_that_fails_is_an_error_and_costs_no_other_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    flag = tmp_path / "flag"
    (tmp_path / "of_a_site.py").write_text(FAILING.format(flag=str(flag), name=name))
    server = ForkServer([FORKED, "of_a_site"])
    child = forked(server)
    before = server.pid
    flag.touch()

    with pytest.raises(ForkServerError, match="its fork server cannot fork: Resource temporarily"):
        forked(server)

    assert ask(forked(server), "parent") == ask(child, "parent") == str(before)
    server.close()


def test_a_server_without_room_for_descriptors_says_so_and_goes_on(server: ForkServer) -> None:
    child = forked(server)
    before = server.pid
    assert before is not None
    soft, hard = resource.prlimit(before, resource.RLIMIT_NOFILE)
    for room in (0, 1, 2):
        taken = {int(each.name) for each in Path(f"/proc/{before}/fd").iterdir()}
        free = min(set(range(soft)) - taken)
        resource.prlimit(before, resource.RLIMIT_NOFILE, (free + room + 1, hard))
        with pytest.raises(ForkServerError, match="cannot fork: Too many open files"):
            forked(server)
        resource.prlimit(before, resource.RLIMIT_NOFILE, (soft, hard))

    assert ask(forked(server), "parent") == ask(child, "parent") == str(before)


def test_a_child_that_closed_its_output_costs_no_other(server: ForkServer) -> None:
    other = forked(server)
    child = forked(server)

    child.stdin.write(b"close\n")

    assert until(lambda: child.poll() is not None)
    assert child.close() == 0
    assert ask(other, "parent") == str(server.pid)


@pytest.mark.parametrize(("line", "status"), [("die 7", 7), ("raise", 1)])
@pytest.mark.parametrize("way", ["forked", "started"])
def test_a_child_that_dies_says_how_and_costs_no_other(
    server: ForkServer, way: str, line: str, status: int
) -> None:
    other = forked(server)
    child = forked(server) if way == "forked" else start_interpreter(FORKED, 0)

    if way == "forked":
        assert ask(child, line) == ""
        assert until(lambda: child.poll() == status)
        assert child.close() == child.close() == status
        assert child.poll() == status
    else:  # no `main` is called: it ends at once
        assert until(lambda: child.poll() == 0)
        assert child.close() == child.close() == 0

    assert ask(other, "parent") == ask(forked(server), "parent") == str(server.pid)
    assert other.poll() is None


def test_what_a_child_started_ends_with_it(server: ForkServer) -> None:
    child = forked(server)
    grandchild = int(ask(child, "start"))

    child.stdin.write(b"die 0\n")
    until(lambda: child.poll() is not None)
    assert lives(grandchild)
    child.close()

    assert until(lambda: not lives(grandchild))
    assert not lives(child.pid)


def test_children_die_with_their_server_and_the_next_call_has_another(server: ForkServer) -> None:
    child = forked(server)
    before = server.pid
    assert before is not None
    child.stdin.write(b"hang\n")

    os.kill(before, signal.SIGKILL)

    assert child.stdout.read() == b""
    assert until(lambda: not lives(child.pid))
    assert child.poll() == -signal.SIGKILL
    child.close()
    assert ask(forked(server), "parent") == str(server.pid) != str(before)


def test_a_server_that_hangs_is_replaced(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(server)
    before = server.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    with pytest.raises(ForkServerError, match="in time"):
        server.fork(FORKED, time.monotonic() + 0.01)
    assert server.pid == before  # it had no time
    monkeypatch.setattr(client, "_FORK_S", 0.01)
    monkeypatch.setattr(client, "_ONE_FORK_S", 0.01)

    assert ask(forked(server), "parent") == str(server.pid) != str(before)

    assert not lives(before)


def test_a_server_that_hangs_is_replaced_by_short_calls_too(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(server)
    before = server.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    monkeypatch.setattr(client, "_FORK_S", 0.2)
    monkeypatch.setattr(client, "_ONE_FORK_S", 0.05)

    def forks() -> bool:
        with contextlib.suppress(ForkServerLateError):
            return ask(server.fork(FORKED, time.monotonic() + 0.1), "parent") != str(before)
        return False

    assert until(forks)
    assert not lives(before)


WAITING = """
import os, time
while not os.path.exists({!r}):
    time.sleep(0.01)
"""


def test_a_call_that_is_over_soon_leaves_a_server_that_imports_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(client, "_FORK_S", 0.01)
    flag = tmp_path / "flag"
    (tmp_path / "of_a_site.py").write_text(WAITING.format(str(flag)))
    server = ForkServer(["of_a_site", FORKED])
    server.warm_up()
    before = server.pid

    for _ in range(3):
        with pytest.raises(ForkServerLateError, match="in time"):
            server.fork(FORKED, time.monotonic() + 0.05)
    flag.touch()

    assert ask(forked(server), "parent") == str(before)
    server.close()


def test_a_child_is_killed_at_once_while_another_thread_waits_for_its_end(
    server: ForkServer,
) -> None:
    child = forked(server)
    stopped = server.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    closing = threading.Thread(target=child.close)
    closing.start()
    assert until(lambda: not lives(child.pid))

    child.kill()

    waited_for = closing.is_alive()
    os.kill(stopped, signal.SIGCONT)
    closing.join()
    assert waited_for
    assert child.close() == -signal.SIGKILL


@pytest.mark.parametrize(("line", "status"), [("hang", -signal.SIGKILL), ("die 7", 7)])
def test_what_has_the_id_of_a_child_of_a_dead_server_is_not_killed(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, line: str, status: int
) -> None:
    child = forked(server)
    before = server.pid
    assert before is not None
    child.stdin.write(line.encode() + b"\n")
    if status == 7:
        assert until(lambda: child.poll() == 7)
    os.kill(before, signal.SIGKILL)
    assert until(lambda: server.pid is None)
    killed: list[int] = []
    monkeypatch.setattr(client, "kill_group", killed.append)

    child.kill()

    assert child.close() == status
    assert killed == []


def test_a_call_without_descriptors_leaves_none_open(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(server)
    pipes = [os.pipe()]  # for the first of two
    before = len([*Path("/proc/self/fd").iterdir()])

    def pipe() -> tuple[int, int]:
        if not pipes:
            raise OSError(errno.EMFILE, "as a process without room")
        return pipes.pop()

    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(OSError, match="without room"):
        forked(server)

    assert len([*Path("/proc/self/fd").iterdir()]) == before - 2


@pytest.mark.parametrize("changes", [1, 3])
def test_a_server_whose_files_changed_during_its_imports_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = tmp_path / "seen"
    seen.touch()
    (tmp_path / "of_a_site.py").write_text(f"""
import os
if os.path.getsize({str(seen)!r}) < {changes}:
    with open({str(seen)!r}, "a") as file:
        file.write(".")
    with open(__file__, "a") as file:
        file.write("# another version")
""")
    server = ForkServer([FORKED, "of_a_site"])
    server.warm_up()
    before = server.pid

    assert ask(forked(server), "parent") == str(server.pid) != str(before)
    assert seen.stat().st_size == changes
    server.close()


def test_a_server_whose_files_changed_is_replaced_and_its_children_live_on(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = tmp_path / "of_a_site.py"
    module.write_text("")
    server = ForkServer([FORKED, "of_a_site"])
    child = forked(server)
    before = server.pid
    assert before is not None
    os.utime(module, ns=(1, 1))

    assert ask(forked(server), "parent") == str(server.pid) != str(before)

    assert ask(child, "parent") == str(before)
    child.close()
    assert until(lambda: not lives(before))
    server.close()


PARENT = f"""
import sys, time
from controller.fork_server.client import ForkServer
server = ForkServer(["{FORKED}"])
children = [server.fork("{FORKED}", time.monotonic() + {PATIENCE_S}) for _ in range(2)]
children[0].stdin.write(b"hang\\n")
children[1].stdin.write(b"remove " + sys.argv[1].encode() + b"\\n")
print(server.pid, *(child.pid for child in children), flush=True)
time.sleep(600)
"""


def test_server_and_children_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "temporary"
    file.touch()
    command = [sys.executable, "-c", PARENT, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(each) for each in parent.stdout.readline().split()]
        assert all(lives(pid) for pid in pids)

        parent.kill()

    assert len(pids) == 3
    assert until(lambda: not any(lives(pid) for pid in pids))
    assert not file.exists()


def test_a_module_that_cannot_be_imported_is_an_error() -> None:
    server = ForkServer(["tests.fakes.none_of_that_name"])

    with pytest.raises(ForkServerError, match="forks no child"):
        forked(server)

    server.close()


def test_forked_policies_decide_as_others_and_are_killed_when_they_overrun(
    policies: ForkServer,
) -> None:
    inputs = some_inputs(policy="fuga").encode()
    own = PolicyProcess()
    process = PolicyProcess(niceness=5, start=policies.fork)

    decided = process.decide(inputs, policy="fuga", deadline_s=PATIENCE_S)

    assert decided.document == own.decide(inputs, policy="fuga", deadline_s=PATIENCE_S).document
    bound = process.ideal(inputs, resource=0, deadline_s=PATIENCE_S)
    assert bound == own.ideal(inputs, resource=0, deadline_s=PATIENCE_S)
    own.close()
    child, before = process._child, policies.pid
    assert child is not None
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == 5
    os.kill(child.pid, signal.SIGSTOP)  # as a policy that never returns
    with pytest.raises(PolicyFailedError, match=r"exceeded its time of 0\.2 s and was killed"):
        process.decide(inputs, policy="fuga", deadline_s=0.2)
    assert not lives(child.pid)
    assert process.decide(inputs, policy="fuga", deadline_s=PATIENCE_S).document["placed"]
    assert policies.pid == before
    process.close()


@pytest.mark.parametrize(("before", "wanted", "after"), [(0, 3, 3), (4, 3, 4), (4, 5, 5)])
def test_no_child_is_made_less_nice(before: int, wanted: int, after: int) -> None:
    """Only root may: others would get a PermissionError."""
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, process.pid) - own

    with subprocess.Popen(["nice", "-n", str(before), "sleep", "1000"]) as process:
        try:
            assert until(lambda: niceness() == before)
            make_nice(process.pid, own + wanted)
            assert niceness() == after
        finally:
            process.kill()
    make_nice(process.pid, own + wanted)  # it has gone
