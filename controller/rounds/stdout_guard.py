"""Keeps prints of libraries out of standard output.

C libraries print to standard output: HiGHS sometimes writes a line even with its output switched
off. Such a line would corrupt an answer that a program reads from there.
"""

from __future__ import annotations

import os
from typing import BinaryIO


def capture_stdout() -> BinaryIO:
    """Return the standard output as a private file; redirect later prints to standard error."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own
