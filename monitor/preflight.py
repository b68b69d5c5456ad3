"""`python -m monitor.preflight`: check a host once, before it is registered.

Reads one JSON object on standard input, see `PreflightTarget`, and writes one on standard output.
It connects as the monitor would: with the same credential files, in child processes that are killed
at the deadline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypervisor import (
    Credential,
    HostConnection,
    HostInspection,
    HostSilentError,
    HypervisorError,
    OperationFailedError,
)
from registry import HostCredentialError
from registry.hosts import HostCredentials

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightTarget:
    """A host to check, and how to connect to it."""

    name: str
    uri: str
    credential: str | None = None
    ssh_host_keys: Sequence[str] = ()
    domain_type: str = "kvm"
    pool: str = "default"
    network: str = "default"


def check_host(
    target: PreflightTarget,
    others: Sequence[PreflightTarget],
    credentials: HostCredentials,
    *,
    deadline_s: float,
) -> dict[str, Any]:
    """Check a host; return its answers, and the error of each failed query.

    All hosts are queried at the same time, so hung ones cost one deadline together.
    """
    with ThreadPoolExecutor(max_workers=1 + len(others)) as pool:
        futures = [pool.submit(_guest_processor, each, credentials, deadline_s) for each in others]
        found = _inspect_target(target, credentials, deadline_s)
        answers = {each.name: answer.result() for each, answer in zip(others, futures, strict=True)}
    known = {name: xml for name, (xml, _) in answers.items() if xml is not None}
    found["others_unread"] = {name: fault for name, (xml, fault) in answers.items() if xml is None}
    own = (found.get("host") or {}).get("processor")
    if own is not None and known:
        try:
            with _new_connection(target, credentials, deadline_s) as host:
                compared = _retry_after_crash(
                    lambda: host.compare_processors(
                        domain_type=target.domain_type, own=own, others=known
                    )
                )
            found["processors"] = {**asdict(compared), "others": sorted(known)}
        except HypervisorError as error:
            found["processors_fault"] = str(error)
    return found


def _inspect_target(
    target: PreflightTarget, credentials: HostCredentials, deadline_s: float
) -> dict[str, Any]:
    """Return the inspection of a host to be registered, or the faults that prevent it."""
    try:
        host = _new_connection(target, credentials, deadline_s)
    except HostCredentialError as error:
        return {"credential_fault": str(error)}
    with host:
        try:
            seen = _inspect_host(host, target)
        except OperationFailedError as error:
            return {"host_fault": error.reason}
        except HypervisorError as error:
            return {"unreachable": str(error)}
        try:
            pool = _retry_after_crash(lambda: host.inspect_pool(target.pool))
            return {"host": asdict(seen), "pool": asdict(pool)}
        except HypervisorError as error:
            reason = error.reason if isinstance(error, OperationFailedError) else str(error)
            return {"host": asdict(seen), "pool_fault": reason}


def _guest_processor(
    target: PreflightTarget, credentials: HostCredentials, deadline_s: float
) -> tuple[str | None, str]:
    """Return the CPU of guests on a host, or None and the reason."""
    try:
        with _new_connection(target, credentials, deadline_s) as host:
            return _inspect_host(host, target).processor, "its libvirt does not report it"
    except (HypervisorError, HostCredentialError) as error:
        return None, str(error)


def _inspect_host(host: HostConnection, target: PreflightTarget) -> HostInspection:
    """Inspect a host for its domain type and network; try once more if the child crashed."""
    return _retry_after_crash(
        lambda: host.inspect(domain_type=target.domain_type, network=target.network)
    )


def _retry_after_crash(call: Callable[[], T]) -> T:
    """Call once more if a signal ended the child process.

    libvirt's SSH client crashes with SIGSEGV in about one of some hundred connections. That says
    nothing about the host.
    """
    try:
        return call()
    except HostSilentError as error:
        if error.signal is None:
            raise
    return call()


def _new_connection(
    target: PreflightTarget, credentials: HostCredentials, deadline_s: float
) -> HostConnection:
    """Return a connection to a host to check, not open yet, or raise `HostCredentialError`."""
    files = credentials.find(target.uri, target.credential)
    opened_by = None
    if files is not None:
        opened_by = Credential(
            name=files.name,
            folder=str(files.folder),
            stamp=files.stamp,
            ssh_host_keys=tuple(target.ssh_host_keys),
        )
    return HostConnection(target.uri, credential=opened_by, deadline_s=deadline_s)


def main(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one request to check a host before its registration."""
    return check_host(
        PreflightTarget(**request["target"]),
        [PreflightTarget(**each) for each in request["others"]],
        HostCredentials(Path(request["credentials"])),
        deadline_s=request["deadline_s"],
    )


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
