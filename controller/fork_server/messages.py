"""What a fork server and its client say to each other, by sockets that keep messages apart."""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import Final

MESSAGE: Final = struct.Struct("!ii")
#: What a client sends with the name of a module: the line on which it hears of the child and whose
#: end is the child's, standard input, standard output. A server with no room for all of them gets
#: the first.
DESCRIPTORS: Final = 3
MAX_NAME_BYTES: Final = 256


class ChildReport(IntEnum):
    """What a server says of a child; each comes with a number."""

    FORKED = 0  #: its process id
    ENDED = 1  #: its exit status, negative for a signal
    STALE = 2  #: 0; what the server imported has changed, and it forks nothing more
    FAILED = 3  #: the error number for which it was not forked


def status_of(ended: os.waitid_result) -> int:
    """Return the exit status of a child that ended, negative for a signal."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
