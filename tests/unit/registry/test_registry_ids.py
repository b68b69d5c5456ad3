from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from registry.db.ids import uuid7


def test_ids_are_uuids_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    key = uuid7()

    assert key.version == 7
    assert key.variant == "specified in RFC 4122"
    assert -1 <= (key.int >> 80) - before < 60_000


def test_ids_of_one_process_rise() -> None:
    keys = [uuid7() for _ in range(20_000)]

    assert keys == sorted(set(keys))


def test_ids_rise_when_the_clock_is_set_back() -> None:
    first = uuid7()
    with mock.patch("registry.db.ids.time.time_ns", return_value=0):
        second = uuid7()

    assert second > first


def test_ids_of_threads_never_meet() -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: uuid7(), range(20_000)))

    assert len(set(keys)) == len(keys)
