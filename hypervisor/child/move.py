"""The child process that moves VMs between two hosts.

Usage: ``python -m hypervisor.child.move SOURCE DESTINATION``, by `hypervisor.migrator` alone. The
migration is client-managed: hosts need not reach each other's libvirt, and the move is cancelled
when this process ends.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from hypervisor import wire
from hypervisor.child import cold_moves, filters, live_moves, migrating_domains, move_checks
from hypervisor.child.driver import start_event_loop
from hypervisor.child.move_hosts import MoveHosts
from hypervisor.credential import CREDENTIAL_VARIABLE, DESTINATION_VARIABLE, Credential
from hypervisor.errors import (
    HostUnreachableError,
    MigrationRefusedError,
    MoveHangsError,
    OperationFailedError,
)
from hypervisor.move_model import HostEndpoint, MoveSpec

OnProgress = Callable[[Mapping[str, Any]], object]


class MoveOperations:
    """The operations of the child process of a move."""

    def __init__(self, hosts: MoveHosts, stop: threading.Event, on_progress: OnProgress) -> None:
        self._hosts = hosts
        self._stop = stop
        self._on_progress = on_progress
        self._operations: Mapping[str, Callable[..., Any]] = {
            "check": self._check_move,
            "live": self._move_running_vm,
            "cold": self._move_stopped_vm,
            "withdraw": self._withdraw_move,
        }

    def perform(self, op: str, args: Mapping[str, Any]) -> Any:
        """Perform one operation of a move.

        Raises only HostUnreachableError, OperationFailedError or MigrationRefusedError.
        """
        with self._hosts.translate_errors(f"{op}_move"):
            self._hosts.open()
            return self._operations[op](**args)

    def _check_move(self, spec: Mapping[str, Any]) -> None:
        """Check for obstacles to a move; see `move_checks`."""
        move_checks.check_move(self._hosts, self._decode_spec(spec))

    def _move_running_vm(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Migrate a running guest, and return the result for the parent."""
        done = live_moves.move_running_vm(
            self._hosts,
            self._decode_spec(spec),
            self._stop,
            lambda progress: self._on_progress(dataclasses.asdict(progress)),
        )
        return dataclasses.asdict(done)

    def _withdraw_move(self, spec: Mapping[str, Any]) -> bool:
        """Undo a hung move; return whether the guest runs only at the source."""
        return migrating_domains.withdraw_move(self._hosts, wire.decode_move_spec(spec))

    def _move_stopped_vm(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copy the disk of a stopped VM, and return the result for the parent."""
        done = cold_moves.move_stopped_vm(
            self._hosts,
            self._decode_spec(spec),
            self._stop,
            lambda progress: self._on_progress(dataclasses.asdict(progress)),
        )
        return dataclasses.asdict(done)

    def _decode_spec(self, fields: Mapping[str, Any]) -> MoveSpec:
        """Decode a move's specification; its guard also closes the destination's addresses."""
        spec = wire.decode_move_spec(fields)
        if spec.guard is None:
            return spec
        destination, source = self._hosts.destination.for_move, (spec.network_kind, spec.network)
        guard = filters.add_host_addresses(destination, spec.guard, [source])
        return dataclasses.replace(spec, guard=guard)


_MAX_MEMORY_BYTES = 1 << 30
#: Time to abort a move after the parent ended, so that the next process finds both hosts settled.
_GOODBYE_S = 5.0


def main(source: HostEndpoint, destination: HostEndpoint) -> None:
    """Serve the parent's requests to move VMs between two hosts until the parent ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    # Output of libraries or ssh must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    stop = threading.Event()
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    reading = (sys.stdin.buffer, requests, stop)
    threading.Thread(target=_read_requests, args=reading, daemon=True).start()
    start_event_loop()
    hosts = MoveHosts(source, destination)
    operations = MoveOperations(
        hosts, stop, lambda progress: answers.write(wire.encode({"progress": progress}))
    )
    while (line := requests.get()) is not None:
        answers.write(wire.encode(_answer_request(operations, line)))
        stop.clear()
    hosts.close()


def _answer_request(operations: MoveOperations, line: bytes) -> dict[str, Any]:
    """Carry out a request of the parent, and return its result or error as JSON values."""
    request = wire.decode(line)
    try:
        return {"ok": operations.perform(request["op"], request["args"])}
    except MigrationRefusedError as error:
        return {"error": "refused", "obstacle": error.obstacle, "reason": error.detail}
    except HostUnreachableError as error:
        return {"error": "unreachable", "uri": error.uri, "reason": error.reason}
    except MoveHangsError as error:
        return {"error": "hangs", "reason": error.reason, "begun": error.begun}
    except OperationFailedError as error:
        return {"error": "failed", "reason": error.reason, "code": error.code}


def _read_requests(
    requests_from: IO[bytes], requests: queue.SimpleQueue[bytes | None], stop: threading.Event
) -> None:
    """Pass requests to the main thread, and set ``stop`` for an abort.

    Ends the process when the parent has ended, even during a hung call.
    """
    for line in requests_from:
        if wire.decode(line)["op"] == "abort":
            stop.set()
        else:
            requests.put(line)
    stop.set()
    requests.put(None)
    time.sleep(_GOODBYE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the processes that libvirt started
    os._exit(1)


def _host_from_environment(uri: str, machine: str, variable: str) -> HostEndpoint:
    """Return a host of the move; its credential is in an environment variable."""
    given = os.environ.pop(variable, None)
    return HostEndpoint(uri, Credential.from_json(given) if given else None, machine or None)


if __name__ == "__main__":
    source, source_machine, destination, destination_machine = sys.argv[1:]
    main(
        _host_from_environment(source, source_machine, CREDENTIAL_VARIABLE),
        _host_from_environment(destination, destination_machine, DESTINATION_VARIABLE),
    )
