"""The child process of a host: reads a request per line, answers a line.

Usage: ``python -m hypervisor.child.single_host_child URI [MACHINE]``, by `hypervisor.connection`
alone. The URI has no secret: the credential comes by the environment. A machine with another UUID
than ``MACHINE`` is refused.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import sys
import threading
import time
from typing import IO

from hypervisor import wire
from hypervisor.child.driver import LibvirtHost, start_event_loop
from hypervisor.credential import CREDENTIAL_VARIABLE, Credential
from hypervisor.errors import HostUnreachableError, OperationFailedError

_MAX_MEMORY_BYTES = 1 << 30
_GOODBYE_S = 2.0  #: for the current call, after the parent ended


def main(uri: str, credential: Credential | None, machine: str | None = None) -> None:
    """Serve the parent's requests about one host until the parent ends."""
    # Answers of hosts are parsed here: oversized ones must not use up other processes' memory.
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    # Output of libraries or ssh must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    start_event_loop()
    host = LibvirtHost(uri, credential, machine)
    while (line := requests.get()) is not None:
        answers.write(wire.encode(_answer_request(host, line)))
    host.close()


def _answer_request(host: LibvirtHost, line: bytes) -> dict[str, object]:
    """Perform the requested operation on the host; return its result or error as JSON values."""
    request = wire.decode(line)
    op = request["op"]
    try:
        return {"ok": host.perform(op, request["args"])}
    except HostUnreachableError as error:
        return {"error": "unreachable", "reason": error.reason}
    except OperationFailedError as error:
        return {"error": "failed", "reason": error.reason, "code": error.code}


def _read_requests(requests_from: IO[bytes], requests: queue.SimpleQueue[bytes | None]) -> None:
    """Pass requests to the main thread; end the process with the parent, even in a hung call.

    PR_SET_PDEATHSIG would fire when the *thread* that started this process ends.
    """
    for line in requests_from:
        requests.put(line)
    requests.put(None)
    time.sleep(_GOODBYE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with the processes that libvirt started
    os._exit(1)


if __name__ == "__main__":
    given = os.environ.pop(CREDENTIAL_VARIABLE, None)
    main(
        sys.argv[1],
        Credential.from_json(given) if given else None,
        sys.argv[2] if len(sys.argv) > 2 else None,
    )
