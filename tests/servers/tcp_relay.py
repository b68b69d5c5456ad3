"""A port of this machine that leads to another host's: the same service under another name."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def relay_to(host: str, port: int) -> Iterator[int]:
    """Relay connections until the block ends; hand out the port of 127.0.0.1."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener was shut
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, port))
                open_ends.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threads.append(threading.Thread(target=pump, args=ends))
                    threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for end in open_ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for end in (listener, *open_ends):
            end.close()
