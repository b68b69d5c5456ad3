"""Workers run the operator's fencing command, and only its success frees anything."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from registry import AssignmentState, FenceState, Registry
from tests.integration.workers.world import KilledError, World, eventually
from tests.raw_sql import RawSql
from workers import fencing
from workers.context import TaskOutcome


@pytest.fixture
def world(register: Registry) -> World:
    """One VM runs on h1, which then falls silent and is to be fenced."""
    world = World(register, fence_target="bmc 7; reboot")
    assignment_id = world.request()
    assert world.build(assignment_id) == TaskOutcome.DONE
    host = register.hosts.get("h1")
    register.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
    register.fencing.request("h1", actor="cli")
    return world


def script(folder: Path, body: str) -> Path:
    path = folder / "fence.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fence(world: World, *command: Any, **changes: Any) -> TaskOutcome:
    context = world.worker(fence_command=tuple(str(each) for each in command), **changes)
    return fencing.fence_host(world.registry.hosts.get("h1").id, context)


def held(world: World) -> AssignmentState | None:
    [vm] = world.registry.vms.list().items
    return vm.assignment_state


def last_error(world: World) -> str:
    found = world.registry.hosts.get("h1").fence
    assert found is not None
    assert found.state == FenceState.FAILED
    return found.last_error or ""


def test_the_command_is_told_target_and_host_as_they_are_and_nothing_secret(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGA_DATABASE_URL", "postgresql://fuga:secret@db/fuga")
    path = script(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/said; env >> {tmp_path}/said')

    assert fence(world, path, "off", "{target}", "--host={host}") == TaskOutcome.DONE

    said = (tmp_path / "said").read_text()
    assert said.splitlines()[:3] == ["off", "bmc 7; reboot", "--host=h1"]
    assert "secret" not in said
    assert held(world) is None
    assert world.registry.check() == []


def test_a_command_that_fails_frees_nothing_and_what_it_wrote_is_kept(
    world: World, tmp_path: Path
) -> None:
    path = script(tmp_path, "echo the BMC does not answer >&2; exit 3")

    assert fence(world, path) == TaskOutcome.FAILED

    assert last_error(world) == f"{path} ended with status 3: the BMC does not answer"
    assert held(world) == AssignmentState.ACTIVE


def test_control_characters_of_a_command_are_kept_as_escapes(world: World, tmp_path: Path) -> None:
    path = script(tmp_path, r"printf 'a\000b\033[31m\n'; exit 1")

    assert fence(world, path) == TaskOutcome.FAILED

    assert last_error(world) == f"{path} ended with status 1: a\\x00b\\x1b[31m"


def test_of_a_command_that_writes_without_end_the_last_words_are_kept(
    world: World, tmp_path: Path
) -> None:
    """A process that it leaves behind cannot write on, into a file that nobody sees."""
    path = script(
        tmp_path,
        f"(trap '' PIPE; yes >&2; echo > {tmp_path}/ended) & yes | head -c 5000000; exit 1",
    )

    assert fence(world, path) == TaskOutcome.FAILED

    assert len(last_error(world)) < 1200
    eventually((tmp_path / "ended").exists)


def test_a_command_that_no_program_can_be_given_is_recorded(world: World) -> None:
    assert fence(world, "/bin/echo", "a\0b") == TaskOutcome.FAILED

    assert "cannot be run: embedded null byte" in last_error(world)


def test_a_command_that_takes_too_long_is_killed_and_proves_nothing(world: World) -> None:
    assert fence(world, "/bin/sleep", "1000000", fence_timeout_s=0.2) == TaskOutcome.FAILED

    assert last_error(world) == "/bin/sleep took longer than 0.2 s and was killed"
    assert held(world) == AssignmentState.ACTIVE


@pytest.mark.parametrize(
    ("command", "said"), [((), "FUGA_FENCE_COMMAND"), (("/nowhere/fence",), "cannot be run")]
)
def test_a_command_that_is_not_there_frees_nothing(
    world: World, command: tuple[str, ...], said: str
) -> None:
    assert fence(world, *command) == TaskOutcome.FAILED

    assert said in last_error(world)
    assert held(world) == AssignmentState.ACTIVE


def test_a_worker_killed_after_the_command_leaves_it_to_the_next_one(
    world: World, tmp_path: Path, raw: RawSql
) -> None:
    path = script(tmp_path, f"echo once >> {tmp_path}/runs")

    def die(name: str) -> None:
        if name == "fence.after_command":
            raise KilledError

    with pytest.raises(KilledError):
        fence(world, path, checkpoint=die)
    assert held(world) == AssignmentState.ACTIVE
    assert fence(world, path) == TaskOutcome.NOT_OURS
    raw.run("UPDATE host_fences SET lease_until = requested_at")

    assert fence(world, path) == TaskOutcome.DONE

    assert (tmp_path / "runs").read_text() == "once\nonce\n"
    assert held(world) is None


def test_a_worker_that_lost_its_claim_before_the_command_does_not_run_it(
    world: World, tmp_path: Path, raw: RawSql
) -> None:
    path = script(tmp_path, f"echo once >> {tmp_path}/runs")

    def overtaken(name: str) -> None:
        if name == "fence.before_command":
            raw.run("UPDATE host_fences SET lease_until = requested_at")
            world.report()  # the host answers again

    assert fence(world, path, checkpoint=overtaken) == TaskOutcome.CLAIM_LOST

    assert not (tmp_path / "runs").exists()
    assert held(world) == AssignmentState.ACTIVE
    assert world.registry.hosts.get("h1").health == "up"


def test_what_a_command_leaves_running_does_not_hold_the_worker(
    world: World, tmp_path: Path
) -> None:
    path = script(tmp_path, f"sleep 1000000 & echo $! > {tmp_path}/pid")

    assert fence(world, path) == TaskOutcome.DONE

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it is still there
