"""The child process of a host: reads a request per line, answers a line.

Usage: ``python -m hypervisor.child.single_host_child URI [MACHINE]``, by `hypervisor.connection`
alone. The URI is the one that may be shown: what opens the host comes by the environment. A machine
of another UUID than ``MACHINE`` is refused.
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

_MOST_MEMORY_BYTES = 1 << 30
_GOODBYE_S = 2.0  #: for the call in hand, once the parent has gone


def main(uri: str, credential: Credential | None, machine: str | None = None) -> None:
    """Serve one parent until it has gone."""
    # What a host says is taken apart here: however much it is, it is no other process's memory.
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    # What a library or an ssh prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    start_event_loop()
    host = LibvirtHost(uri, credential, machine)
    while (line := requests.get()) is not None:
        answers.write(wire.encode(_answer(host, line)))
    host.close()


def _answer(host: LibvirtHost, line: bytes) -> dict[str, object]:
    request = wire.decode(line)
    op = request["op"]
    try:
        return {"ok": host.perform(op, request["args"])}
    except HostUnreachableError as error:
        return {"error": "unreachable", "reason": error.reason}
    except OperationFailedError as error:
        return {"error": "failed", "reason": error.reason, "code": error.code}


def _read(requests_from: IO[bytes], requests: queue.SimpleQueue[bytes | None]) -> None:
    """Feed the main thread. End the process when the parent has gone, also from a hung call.

    Not by PR_SET_PDEATHSIG: that fires when the *thread* that started us ends.
    """
    for line in requests_from:
        requests.put(line)
    requests.put(None)
    time.sleep(_GOODBYE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with what libvirt started for us
    os._exit(1)


if __name__ == "__main__":
    given = os.environ.pop(CREDENTIAL_VARIABLE, None)
    main(
        sys.argv[1],
        Credential.from_json(given) if given else None,
        sys.argv[2] if len(sys.argv) > 2 else None,
    )
