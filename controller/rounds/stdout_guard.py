"""Standard output for ourselves alone.

Libraries in C print where they like: HiGHS writes a line of its own to standard
output now and then, with all its output switched off. Where a program reads our
standard output, such a line would spoil an answer.
"""

from __future__ import annotations

import os
from typing import BinaryIO


def take_stdout() -> BinaryIO:
    """Return the standard output of this process; what others print goes to standard error."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own
