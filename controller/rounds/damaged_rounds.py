"""Stored rounds whose bytes were damaged after they were decided."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from registry import RoundDamagedError


@contextmanager
def reporting_damage(number: int) -> Iterator[None]:
    """Have what cannot be read of stored round ``number`` raise `RoundDamagedError`.

    Bytes of the register center may be cut or lack what this release reads. Nothing but reading
    belongs in here: an error of our own would be reported as damage.
    """
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RoundDamagedError(number) from error
