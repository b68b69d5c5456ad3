"""UUIDs of version 7: their order is the order of creation, so they page by keyset."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from datetime import datetime, timedelta
from typing import Final

#: How far the clocks of processes, which ids contain, may differ from the database's.
CLOCKS_APART: Final = timedelta(hours=1)
_COUNTER_BITS = 42
_lock = threading.Lock()
_last_ms = 0
_counter = 0


def lowest_uuid7(moment: datetime) -> uuid.UUID:
    """Return the lowest UUIDv7 of a moment, as a bound for ids."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)


def uuid7() -> uuid.UUID:
    """Return a new UUIDv7, above every other that this process made.

    RFC 9562, method 1: the 42 bits after the millisecond are a counter that
    starts at random and counts up within the millisecond.
    """
    global _last_ms, _counter  # noqa: PLW0603 - the generator's state, under its lock
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms = now_ms
            # The top bit stays free, so that counting up never runs over.
            _counter = secrets.randbits(_COUNTER_BITS - 1)
        else:  # the same millisecond, or the clock was set back
            _counter += 1
            if _counter >> _COUNTER_BITS:
                _last_ms += 1
                _counter = secrets.randbits(_COUNTER_BITS - 1)
        ms, counter = _last_ms, _counter
    value = (ms & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= (counter >> 30) << 64
    value |= 0b10 << 62
    value |= (counter & ((1 << 30) - 1)) << 32
    value |= secrets.randbits(32)
    return uuid.UUID(int=value)
