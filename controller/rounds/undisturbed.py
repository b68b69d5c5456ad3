"""No search for cycles of objects while a round is decided.

A round makes hundreds of thousands of objects that live until it is over. Python
takes that for a reason to look through all of them again and again, which costs a
round of a large cluster more than its read; what it would find waits a few seconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Search for no cycles in this block, in any thread."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
