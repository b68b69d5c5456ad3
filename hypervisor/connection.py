"""A connection to one host, by a child process that handles one request at a time.

libvirt calls can block for ever and cannot be cancelled, so they run in a process that can be
killed.
"""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hypervisor import wire
from hypervisor.child_process import ChildProcess, SilentError
from hypervisor.credential import Credential
from hypervisor.errors import (
    HostSilentError,
    HostUnreachableError,
    HypervisorError,
    OperationFailedError,
    operation_words,
)
from hypervisor.model import (
    ConsoleExchange,
    ConsoleTail,
    DomainSpec,
    Guard,
    HostDomain,
    HostInspection,
    HostPoll,
    Mark,
    PoolInspection,
    ProcessorComparison,
)
from plain_text import shorten_text

# -P: modules in the current folder are ignored.
_CHILD: Final = (sys.executable, "-P", "-m", "hypervisor.child.single_host_child")
_PIECE_BYTES: Final = 1 << 20  #: of an upload, between two checks of the deadline
POOL_PATIENCE: Final = 0.75  #: fraction of a poll's deadline that the pool may take
MAX_REASON_LENGTH: Final = 1000  #: characters of an error message from a host


class HostConnection:
    """Calls to one libvirt host, each bounded by a deadline.

    Thread safe: calls of several threads run one after the other, and waiting counts against the
    deadline. After a fork, the forked process starts its own child.

    Parameters
    ----------
    uri : str
        A libvirt URI that the caller has checked: some of libvirt's parameters run programs.
    credential : Credential, optional
        The credential of the host, by default the one that libvirt finds. With a credential the URI
        has no parameters.
    machine : str, optional
        The UUID of the machine. If another machine answers, the host counts as unreachable.
    deadline_s : float
        The default deadline of a call.
    """

    def __init__(
        self,
        uri: str,
        *,
        credential: Credential | None = None,
        machine: str | None = None,
        deadline_s: float = 10.0,
    ) -> None:
        self.uri = uri
        self.credential = credential
        self.machine = machine
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        _connections.add(self)

    def __enter__(self) -> HostConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self, pool: str, *, deadline_s: float | None = None) -> HostPoll:
        """Return capacity, consumption, domains and the pool's volumes. Waits for no guest.

        If the pool does not answer within three quarters of the deadline, the report says so and
        has no volumes. The pool's query stays open until the connection is closed; it blocks no
        other call.
        """
        args = {"pool": pool, "patience_s": self._pool_patience(deadline_s)}
        return wire.decode_poll(self._call_child("report", args, deadline_s))

    def inspect(
        self, *, domain_type: str, network: str, deadline_s: float | None = None
    ) -> HostInspection:
        """Return the host's capabilities for guests of this type, without its pool."""
        args = {"domain_type": domain_type, "network": network}
        fields = self._call_child("inspect", args, deadline_s)
        return HostInspection(**{**fields, "domain_types": tuple(fields["domain_types"])})

    def inspect_pool(self, pool: str, *, deadline_s: float | None = None) -> PoolInspection:
        """Return a pool's state. Creates and deletes an empty volume to read the host's clock."""
        return PoolInspection(**self._call_child("inspect_pool", {"pool": pool}, deadline_s))

    def compare_processors(
        self,
        *,
        domain_type: str,
        own: str,
        others: Mapping[str, str],
        deadline_s: float | None = None,
    ) -> ProcessorComparison:
        """Compare this host's CPU (``own``) with those of ``others``, by host name."""
        args = {"domain_type": domain_type, "own": own, "others": dict(others)}
        return ProcessorComparison(**self._call_child("compare_processors", args, deadline_s))

    def find(self, vm_id: str, *, deadline_s: float | None = None) -> HostDomain | None:
        """Return the domain of a VM, fuga's or foreign; None if there is none.

        During a move the destination has the domain from the beginning, paused, with the arriving
        mark. Once it runs, its run number is this host's, not the source's.
        """
        return wire.decode_domain(self._call_child("find", {"vm_id": vm_id}, deadline_s))

    def create_overlay(
        self,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None = None,
        capacity_gib: int,
        deadline_s: float | None = None,
    ) -> None:
        """Create a qcow2 overlay on a base image, if no volume has that name.

        ``base_format`` is the base's format; None lets the host detect it.
        """
        args = {
            "pool": pool,
            "name": name,
            "base_volume": base_volume,
            "base_format": base_format,
            "capacity_gib": capacity_gib,
        }
        self._call_child("create_overlay", args, deadline_s)

    def put_volume(
        self, pool: str, name: str, content: bytes, *, deadline_s: float | None = None
    ) -> None:
        """Create a small raw volume with this content on the host; replace an existing one."""
        args = {"pool": pool, "name": name, "content": base64.b64encode(content).decode()}
        self._call_child("put_volume", args, deadline_s)

    def define(self, spec: DomainSpec, *, deadline_s: float | None = None) -> None:
        """Define a domain, if none with its mark exists; raises if another mark has its UUID."""
        self._call_child("define", {"spec": spec}, deadline_s)

    def start_paused(
        self, vm_id: str, *, guard: Guard | None = None, deadline_s: float | None = None
    ) -> None:
        """Start a domain paused, with the guard's network filters, if it is not started."""
        self._call_child("start_paused", {"vm_id": vm_id, "guard": guard}, deadline_s)

    def resume(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        """Resume a guest, if it does not run; raises while it is moving.

        Also resumes a guest that a failed move left paused at the source.
        """
        self._call_child("resume", {"vm_id": vm_id}, deadline_s)

    def shut_down(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Press a guest's power button, if it is still in this run.

        Raises while it is moving.
        """
        self._call_child("shut_down", {"vm_id": vm_id, "run": run}, deadline_s)

    def power_off(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Cut a guest's power, if it is still in this run."""
        self._call_child("power_off", {"vm_id": vm_id, "run": run}, deadline_s)

    def reset(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Press a guest's reset button; raises if it is off, in another run, or moving."""
        self._call_child("reset", {"vm_id": vm_id, "run": run}, deadline_s)

    def destroy(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        """Stop a domain hard, if it runs and, when ``mark`` is given, has this mark."""
        self._call_child("destroy", {"vm_id": vm_id, "mark": mark}, deadline_s)

    def undefine(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        """Undefine a stopped domain, if it exists and, when ``mark`` is given, has this mark."""
        self._call_child("undefine", {"vm_id": vm_id, "mark": mark}, deadline_s)

    def attach_disk(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        pool: str,
        volume: str,
        serial: str,
        deadline_s: float | None = None,
    ) -> None:
        """Attach a data volume to a VM as a virtio disk, running or off.

        Does nothing if the VM has the disk; completes an attachment that was interrupted. The disk
        shares the I/O limits of the VM's other disks.

        Parameters
        ----------
        assignment_id : str
            The assignment in the domain's mark.
        volume : str
            A qcow2 volume of the pool, named by `data_volume_name`.
        serial : str
            Up to 20 characters. Guests with udev see `/dev/disk/by-id/virtio-SERIAL`.

        Raises
        ------
        OperationFailedError
            If the host has no domain of the assignment, the domain is moving or has a saved state,
            the volume does not exist, another domain or volume uses it, or the domain has another
            disk of that serial number.
        """
        args = {
            "vm_id": vm_id,
            "assignment_id": assignment_id,
            "pool": pool,
            "volume": volume,
            "serial": serial,
            "patience_s": self._pool_patience(deadline_s),
        }
        self._call_child("attach_disk", args, deadline_s)

    def detach_disk(
        self, vm_id: str, *, assignment_id: str, serial: str, deadline_s: float | None = None
    ) -> bool:
        """Remove a disk from a VM's definition, and request it from a running guest.

        Returns
        -------
        bool
            True if neither definition nor QEMU has the disk, as of an absent domain. False while
            the guest has not released it: repeat the call later.

        Raises
        ------
        OperationFailedError
            If the domain is moving or has a saved state, a domain of another assignment has the
            disk, or the disk is an overlay that a snapshot made.
        """
        args = {"vm_id": vm_id, "assignment_id": assignment_id, "serial": serial}
        return bool(self._call_child("detach_disk", args, deadline_s))

    def abort_move(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        """Abort a move of a domain away from this host, if any, and wait until it has ended.

        The process that runs the move gets an error.
        """
        self._call_child("abort_move", {"vm_id": vm_id}, deadline_s)

    def has_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> bool:
        """Return whether a pool has a volume, also one that another host made in a shared pool."""
        return bool(self._call_child("has_volume", {"pool": pool, "name": name}, deadline_s))

    def overlays_of(self, pool: str, name: str, *, deadline_s: float | None = None) -> list[str]:
        """Return the names of files in a pool whose backing chain contains a VM's disk."""
        found = self._call_child("layers_on", {"pool": pool, "name": name}, deadline_s)
        return [str(each) for each in found]

    def domains_using(
        self, pool: str, volumes: Sequence[str], *, deadline_s: float | None = None
    ) -> list[str]:
        """Return the names of domains whose disks or backing chains contain these volumes."""
        args = {
            "pool": pool,
            "volumes": list(volumes),
            "patience_s": self._pool_patience(deadline_s),
        }
        found = self._call_child("users_of", args, deadline_s)
        return [str(each) for each in found]

    def delete_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> None:
        """Delete a volume if it exists; raises while a domain uses it."""
        args = {"pool": pool, "name": name, "patience_s": self._pool_patience(deadline_s)}
        self._call_child("delete_volume", args, deadline_s)

    def upload(
        self,
        *,
        pool: str,
        name: str,
        path: str,
        size_bytes: int,
        sha256: str,
        on_progress: Callable[[int], None],
        head: bytes = b"",
        margin_bytes: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        """Upload a file of this machine into a new volume.

        Parameters
        ----------
        path : str
            The file. Raises if its size or hash differs.
        on_progress : callable
            Called with the bytes sent so far after every piece, and again while they are read back.
            An error that it raises ends the upload.
        head : bytes, optional
            The file's checked beginning, sent in place of its current one. libvirt parses the
            volume's header before the hash of all bytes can be compared.
        margin_bytes : int, optional
            Space that has to stay free in the pool.
        deadline_s : float, optional
            The deadline of each piece.

        Notes
        -----
        An upload that fails deletes its volume. After a missed deadline it cannot: the partial
        volume stays under that name.
        """
        begin = {
            "pool": pool,
            "name": name,
            "path": path,
            "size_bytes": size_bytes,
            "head": base64.b64encode(head).decode(),
            "margin_bytes": margin_bytes,
        }
        try:
            self._call_child("upload_begin", begin, deadline_s)
            sent = 0
            while sent < size_bytes:
                sent = self._call_child("upload_send", {"max_bytes": _PIECE_BYTES}, deadline_s)
                on_progress(sent)
            self._call_child("upload_end", {"sha256": sha256}, deadline_s)
            came_back = 0
            while came_back < size_bytes:
                came_back = self._call_child(
                    "upload_read_back", {"max_bytes": _PIECE_BYTES}, deadline_s
                )
                on_progress(size_bytes)
        except HostUnreachableError:
            raise  # the upload ended with its process or connection
        except BaseException:
            with contextlib.suppress(HypervisorError):
                self._call_child("upload_drop", {}, deadline_s)
            raise

    def files_removed_with(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        pool: str,
        volumes: Sequence[str],
        deadline_s: float | None = None,
    ) -> list[str]:
        """Return the names of files that `remove` deletes with these volumes, as of snapshots.

        Raises while a domain or volume of the host uses one of them.
        """
        args = {
            "vm_id": vm_id,
            "assignment_id": assignment_id,
            "pool": pool,
            "volumes": list(volumes),
            "patience_s": self._pool_patience(deadline_s),
        }
        found = self._call_child("files_removed_with", args, deadline_s)
        return [str(each) for each in found]

    def remove(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
        deadline_s: float | None = None,
    ) -> bool:
        """Remove an assignment's domain and volumes from this host, and check that they are gone.

        Returns
        -------
        bool
            True if neither the domain nor the volumes exist any more. False if the host has a
            domain of this VM that must not be touched (of another generation, or unmarked).
        """
        args = {
            "vm_id": vm_id,
            "assignment_id": assignment_id,
            "generation": generation,
            "pool": pool,
            "volumes": list(volumes),
            "patience_s": self._pool_patience(deadline_s),
        }
        return bool(self._call_child("remove", args, deadline_s))

    def console_tail(
        self, vm_id: str, max_bytes: int = 65536, *, after: int = 0, deadline_s: float | None = None
    ) -> ConsoleTail:
        """Return the last bytes of the serial console's log after the offset ``after``.

        Empty without a log. If the log is shorter than ``after``, the VM was rebuilt, and all bytes
        count.
        """
        args = {"vm_id": vm_id, "max_bytes": max_bytes, "after": after}
        found = self._call_child("console_tail", args, deadline_s)
        return ConsoleTail(content=base64.b64decode(found["content"]), end=found["end"])

    def open_console(self, vm_id: str, *, force: bool, deadline_s: float | None = None) -> None:
        """Hold the serial console of a running guest; one per connection.

        Raises while another client holds it; with ``force``, takes it over.
        """
        self._call_child("console_open", {"vm_id": vm_id, "force": force}, deadline_s)

    def exchange_console(
        self, typed: bytes, *, wait_s: float, deadline_s: float | None = None
    ) -> ConsoleExchange:
        """Type into the held console, and return what the guest wrote.

        Returns at the guest's first output, or after ``wait_s``.
        """
        args = {"typed": base64.b64encode(typed).decode(), "wait_s": wait_s}
        found = self._call_child("console_exchange", args, deadline_s)
        return ConsoleExchange(
            taken=found["taken"], content=base64.b64decode(found["content"]), ended=found["ended"]
        )

    def release_console(self, *, deadline_s: float | None = None) -> None:
        """Release the held console, if any."""
        self._call_child("console_release", {}, deadline_s)

    def close(self) -> None:
        """End the child process that calls this host. A later call starts another."""
        with self._lock:
            if self._child is not None:
                self._child.end()
                self._child = None

    def _pool_patience(self, deadline_s: float | None) -> float:
        """Return how many seconds a call with this deadline may wait for pools."""
        return (self._deadline_s if deadline_s is None else deadline_s) * POOL_PATIENCE

    def _call_child(self, op: str, args: Mapping[str, Any], deadline_s: float | None) -> Any:
        """Have the child perform an operation on the host, and return the result or raise."""
        allowed = self._deadline_s if deadline_s is None else deadline_s
        deadline = time.monotonic() + allowed
        if not self._lock.acquire(timeout=max(0.0, allowed)):
            raise HostUnreachableError(self.uri, f"busy with another call for {allowed:g} s")
        try:
            if self._child is None or self._child.has_ended():
                self._discard_child()
                self._child = ChildProcess(self._child_command(), self.credential)
            answer = wire.decode(self._child.ask(wire.encode({"op": op, "args": args}), deadline))
        except (SilentError, ValueError, OSError) as error:
            self._discard_child()
            reason = self._mask_credentials(f"{operation_words(op)}: {error}")
            raise HostSilentError(self.uri, reason, getattr(error, "signal", None)) from error
        except BaseException:
            # Interrupted between request and answer: the next answer would be a wrong one.
            self._discard_child()
            raise
        finally:
            self._lock.release()
        if answer.get("error") == "unreachable":
            raise HostUnreachableError(self.uri, self._mask_credentials(answer["reason"]))
        if "error" in answer:
            raise OperationFailedError(
                op, self._mask_credentials(answer["reason"]), answer.get("code")
            )
        return answer["ok"]

    def _mask_credentials(self, reason: str) -> str:
        """Return an error's reason shortened, without the folder of the credential."""
        known = reason if self.credential is None else self.credential.mask(reason)
        return shorten_text(known, MAX_REASON_LENGTH)

    def _child_command(self) -> tuple[str, ...]:
        """Return the command of the child process for this host."""
        return (*_CHILD, self.uri, *(() if self.machine is None else (self.machine,)))

    def _discard_child(self) -> None:
        """Kill the child process, so that the next call starts another."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _reset_after_fork(self) -> None:
        """Reset the connection in a forked process: a thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        if self._child is not None:
            self._child.release_pipes()
            self._child = None


_connections: weakref.WeakSet[HostConnection] = weakref.WeakSet()


def _reset_connections_after_fork() -> None:
    """Reset the connections in a forked process, whose children are its parent's."""
    for connection in list(_connections):
        connection._reset_after_fork()


os.register_at_fork(after_in_child=_reset_connections_after_fork)
