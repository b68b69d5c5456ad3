"""Detection of stored rounds whose bytes were damaged."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from registry import RoundDamagedError


@contextmanager
def reporting_damage(number: int) -> Iterator[None]:
    """Convert errors of decoding stored round ``number`` to `RoundDamagedError`.

    Stored bytes may be cut, or lack keys that this release reads. The block must only decode: other
    errors in it would be reported as damage.
    """
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RoundDamagedError(number) from error
