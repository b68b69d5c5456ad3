"""`fuga down`: end the processes, the lab's hosts and its guests; keep the database."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.embedded.lab_hosts import stop_lab
from controller.embedded.processes import terminate_all, terminate_leftovers
from controller.embedded.site_database import AnotherDatabaseError, check_site
from controller.embedded.state import (
    AlreadyRunningError,
    SetupRecord,
    StateDir,
    lock_holder,
    lock_state_dir,
)
from controller.session.polling import progress
from controller.session.settings import load_settings
from controller.terminal.errors import CliError
from controller.terminal.output import echo
from registry import HostAdminEvent, Registry

if TYPE_CHECKING:
    from controller.settings import ControllerSettings
    from registry.requests import Vm

ACTOR: Final = "cli"
_UP_ENDS_S: Final = 40.0
_PAGE: Final = 500


def run_down(*, purge: bool) -> None:
    """End what `fuga up` started. Does nothing if nothing runs."""
    settings = load_settings()
    state = StateDir(settings.state_dir.resolve())
    if not state.path.is_dir():
        echo(f"nothing to stop: {state.path} does not exist")
        return
    if end_running_up(state):
        echo("stopped: `fuga up` and its processes")
    with lock_state_dir(state):
        left = terminate_leftovers(state.processes)
        if left:
            echo(f"stopped: {', '.join(left)}")
        memory = _load_setup_record(state, purge=purge)
        if memory.hosts_from == "lab":
            with progress() as show:
                show("stopping the lab's hosts and guests")
                if purge and settings.database_url is None:
                    stop_lab(state.lab)
                    message = "its records are removed with the state"
                else:
                    message = _remove_site_of_state(settings, state, purge=purge)
            echo(f"stopped: the lab; {message}")
        elif memory.hosts_from == "file":
            echo("your hosts and their VMs keep running; `fuga up` continues.")
            if purge:
                _check_no_vms_left(settings)
        if purge:
            remove_files(state)
            echo(f"removed: the state in {state.path}")
        else:
            echo(f"kept: database, tokens and logs in {state.path}")


def _load_setup_record(state: StateDir, *, purge: bool) -> SetupRecord:
    """Load the setup record; with ``purge``, ignore one that cannot be read."""
    try:
        return SetupRecord.load(state)
    except CliError:
        if not purge:
            raise
        return SetupRecord(hosts_from="lab")


def end_running_up(state: StateDir) -> bool:
    """End the `fuga up` of this folder; kill it if it does not respond."""
    try:
        with lock_state_dir(state):
            return False
    except AlreadyRunningError as error:
        holder = error.holder or lock_holder(state)
        if holder is None:
            raise
    terminate_all([holder], wait_s=_UP_ENDS_S)
    if holder.alive:
        raise CliError(f"`fuga up` (pid {holder.pid}) does not stop")
    return True


def _remove_site_of_state(settings: ControllerSettings, state: StateDir, *, purge: bool) -> str:
    """Remove the lab's site; with ``purge`` only the lab if the database is another's."""
    try:
        return remove_site(settings, state)
    except AnotherDatabaseError:
        if not purge:
            raise
        stop_lab(state.lab)
        return "the database that is set now is another site's and stays as it is"


def remove_site(settings: ControllerSettings, state: StateDir) -> str:
    """End the lab, release its VMs and retire its hosts; return a summary.

    The lab ends first: its machines and their disks are then gone for good, which proves
    that the domains are absent. If it is interrupted, the next `fuga down` or `fuga up`
    finishes it.
    """
    memory = SetupRecord.load(state)
    if memory.lab_hosts:  # hosts of another site may have the names of these
        check_site(memory, state, settings.resolved_database_url())
    memory = dataclasses.replace(memory, ending=True).save(state)
    stop_lab(state.lab)
    message = "nothing was registered"
    if memory.lab_hosts:
        registry = Registry.connect(settings.resolved_database_url())
        try:
            vms = release_vms(registry, memory.lab_hosts)
            hosts = retire_hosts(registry, memory.lab_hosts)
        finally:
            registry.close()
        message = f"{hosts} hosts are retired, {vms} VMs on them are recorded as deleted"
    SetupRecord(catalogue=memory.catalogue, site=memory.site).save(state)
    return message


def release_vms(
    registry: Registry,
    hosts: tuple[str, ...],
    *,
    wait_s: float = 60.0,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Delete pending work of hosts and release their VMs; return the number of VMs.

    Requests are deleted, too, except those with VMs on other hosts.
    """
    here = set(hosts)
    elsewhere = {vm.request_id for vm in _all_vms(registry) if vm.host and vm.host not in here}
    for request_id in {vm.request_id for vm in _all_vms(registry)} - elsewhere:
        registry.requests.delete(request_id, actor=ACTOR)
    released = 0
    deadline = time.monotonic() + wait_s
    while held := [vm for vm in _all_vms(registry, include_deleted=True) if vm.host in here]:
        progressed = False
        for vm in held:
            if vm.desired != "deleted":
                registry.vms.delete(vm.id, actor=ACTOR)
            if vm.assignment_id is None:
                continue
            # A worker that was killed may hold the claim until its lease is over.
            removal = registry.assignments.claim_removal(
                vm.assignment_id, f"down:{os.getpid()}", 30
            )
            if removal is not None:
                registry.assignments.release(removal.claim)
                released += 1
                progressed = True
        if not progressed:
            if time.monotonic() > deadline:
                raise CliError(
                    f"{len(held)} VMs of the lab stay claimed by a worker. If another `fuga "
                    "worker` uses this database, stop it, then run `fuga down` again."
                )
            sleep(0.2)
    return released


def retire_hosts(registry: Registry, names: tuple[str, ...]) -> int:
    """Retire the lab's hosts, whose disks are gone; return how many were not retired before."""
    present = {host.name for host in registry.hosts.all()} & set(names)
    for name in sorted(present):
        registry.hosts.change_admin(
            name, HostAdminEvent.RETIRE, actor=ACTOR, reason="fuga down", volumes_lost=True
        )
    return len(present)


def _all_vms(registry: Registry, *, include_deleted: bool = False) -> list[Vm]:
    found: list[Vm] = []
    cursor: str | None = None
    while True:
        page = registry.vms.list(include_deleted=include_deleted, limit=_PAGE, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


def _check_no_vms_left(settings: ControllerSettings) -> None:
    """Raise `CliError` if hosts have VMs, which cannot be deleted without the database."""
    registry = Registry.connect(settings.resolved_database_url())
    try:
        held = [vm for vm in _all_vms(registry, include_deleted=True) if vm.host]
    finally:
        registry.close()
    if held:
        raise CliError(
            f"{len(held)} VMs are on your hosts, such as {held[0].name} on {held[0].host}; "
            "without the database they cannot be deleted. Run `fuga up`, delete them with "
            "`fuga rm --wait`, then `fuga down --purge` again."
        )


def remove_files(state: StateDir) -> None:
    """Remove the files that `fuga up` makes, and no others in the folder."""
    for folder in (state.lab, state.logs, state.path / "broker", state.path / "images"):
        shutil.rmtree(folder, ignore_errors=True)
    database = [state.database.with_name(state.database.name + end) for end in ("", "-wal", "-shm")]
    secrets = (state.credentials, state.login_link)
    for file in (*database, *secrets, state.processes, state.memory, state.lock):
        file.unlink(missing_ok=True)
    if not any(state.path.iterdir()):
        state.path.rmdir()
