"""A client that stays connected, so that libvirt's test driver keeps its state.

Usage: ``python -m hypervisor.child.keeper URI``. Removes the driver's default domain, prints
``ready``, and ends when the daemon has.
"""

from __future__ import annotations

import sys
import threading

import libvirt

from hypervisor.child.driver import start_event_loop

_DEFAULT_DOMAIN = "test"


def main(uri: str) -> None:
    """Hold a connection to libvirt's test driver until it breaks."""
    start_event_loop()
    connection = libvirt.open(uri)
    broken = threading.Event()
    connection.registerCloseCallback(lambda *_: broken.set(), None)
    for domain in connection.listAllDomains(0):
        if domain.name() == _DEFAULT_DOMAIN:
            domain.destroy()
            domain.undefine()
    sys.stdout.write("ready\n")
    sys.stdout.close()  # the reader need not wait for this process to end
    broken.wait()


if __name__ == "__main__":
    main(sys.argv[1])
