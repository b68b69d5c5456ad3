"""The messages between a fork server and its client, sent over SOCK_SEQPACKET sockets."""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import Final

MESSAGE: Final = struct.Struct("!ii")
#: Number of descriptors that a client sends with a module's name: the socket for reports about
#: the child (closing it ends the child), standard input and standard output. A server that can
#: open no more files receives only the first.
DESCRIPTORS: Final = 3
MAX_NAME_BYTES: Final = 256


class ChildReport(IntEnum):
    """A server's report about a child; each comes with a number."""

    FORKED = 0  #: the number is the child's process id
    ENDED = 1  #: the number is its exit status, negative for a signal
    STALE = 2  #: 0; a file that the server imported has changed, and it forks no more
    FAILED = 3  #: the number is the errno of the failed fork


def exit_status_of(ended: os.waitid_result) -> int:
    """Return the exit status of a child that ended, negative for a signal."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
