"""A day of a class of hosts, packed: 24 hours of each measure of each resource.

Numbers that change from hour to hour are written as differences of variable length, and
compressed. A day of five resources takes some hundred bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

HOURS: Final = 24
MEASURES: Final = ("capacity", "in_service", "committed", "used", "waiting")
#: Resource and measure.
Key = tuple[str, str]


@dataclass(slots=True)
class Hour:
    """An hour of a class of hosts: the number of samples, and mean and maximum of each measure."""

    samples: int
    levels: dict[Key, tuple[int, int]] = field(default_factory=dict)


def pack_day(hours: Mapping[int, Hour]) -> bytes:
    """Return the hours of a day as bytes, which `unpack_day` reads."""
    resources = sorted({resource for hour in hours.values() for resource, _ in hour.levels})
    found = bytearray()
    for number in range(HOURS):
        _write(found, hours[number].samples if number in hours else 0)
    _write(found, len(resources))
    for resource in resources:
        name = resource.encode()
        _write(found, len(name))
        found += name
        for measure in MEASURES:
            _write_series(found, hours, (resource, measure))
    return zlib.compress(bytes(found), level=9)


def unpack_day(packed: bytes) -> dict[int, Hour]:
    """Return the hours that `pack_day` packed; hours without samples are missing."""
    data = zlib.decompress(packed)
    numbers = _Reader(data)
    samples = [numbers.read() for _ in range(HOURS)]
    hours = {number: Hour(count) for number, count in enumerate(samples) if count}
    for _ in range(numbers.read()):
        resource = numbers.read_text(numbers.read())
        for measure in MEASURES:
            for number, level in numbers.read_series():
                hours[number].levels[resource, measure] = level
    return hours


def _write_series(found: bytearray, hours: Mapping[int, Hour], key: Key) -> None:
    """Write the hours that have a measure, the changes of its mean, and maximum less mean."""
    there = [number for number in range(HOURS) if number in hours and key in hours[number].levels]
    _write(found, sum(1 << number for number in there))
    before = 0
    for mean, _ in (hours[number].levels[key] for number in there):
        # Signed numbers alternate: 0, -1, 1, -2, 2 are written as 0, 1, 2, 3, 4.
        change = mean - before
        _write(found, 2 * change if change >= 0 else -2 * change - 1)
        before = mean
    for mean, most in (hours[number].levels[key] for number in there):
        _write(found, most - mean)


def _write(found: bytearray, number: int) -> None:
    """Write a number of at least 0, seven bits per byte, the lowest first."""
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)


class _Reader:
    """Reads numbers and texts in the order in which they were written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> int:
        """Return the next number."""
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def read_text(self, length: int) -> str:
        """Return the next text."""
        start, self._at = self._at, self._at + length
        return self._data[start : self._at].decode()

    def read_series(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield each hour of a measure with its mean and maximum."""
        mask = self.read()
        there = [number for number in range(HOURS) if mask >> number & 1]
        means: list[int] = []
        for _ in there:
            coded = self.read()
            change = -(coded + 1) // 2 if coded % 2 else coded // 2
            means.append((means[-1] if means else 0) + change)
        for number, mean in zip(there, means, strict=True):
            yield number, (mean, mean + self.read())


def rounded_mean(total: int, samples: int) -> int:
    """Return a mean of amounts as the nearest integer; halves are rounded up."""
    return (2 * total + samples) // (2 * samples)


def merge_hours(hours: Sequence[Hour]) -> Hour:
    """Return hours as one: means weighted by samples, and the largest maximum."""
    sums: dict[Key, tuple[int, int, int]] = {}
    for hour in hours:
        for key, (mean, most) in hour.levels.items():
            total, count, highest = sums.get(key, (0, 0, 0))
            sums[key] = (total + mean * hour.samples, count + hour.samples, max(highest, most))
    return Hour(
        sum(hour.samples for hour in hours),
        {key: (rounded_mean(total, count), most) for key, (total, count, most) in sums.items()},
    )
