"""A day of a class of hosts, packed: 24 hours of each measure of each resource.

Numbers that change from hour to hour are written as differences of variable length, and
compressed. A day of five resources takes some hundred bytes.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

HOURS: Final = 24
MEASURES: Final = ("capacity", "in_service", "committed", "used", "waiting")
_END_OF_NAMES: Final = b"\0"
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
    numbers = [hours[number].samples if number in hours else 0 for number in range(HOURS)]
    for key in itertools.product(resources, MEASURES):
        numbers += _series(hours, key)
    data = bytearray(",".join(resources).encode() + _END_OF_NAMES)
    for value in numbers:
        # Seven bits in each byte, the lowest first; the last byte of a number is below 128.
        rest = value
        while rest > 0x7F:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
    return zlib.compress(bytes(data), level=9)


def unpack_day(packed: bytes) -> dict[int, Hour]:
    """Return the hours that `pack_day` packed; hours without samples are missing."""
    names, _, data = zlib.decompress(packed).partition(_END_OF_NAMES)
    numbers = iter(_read_numbers(data))
    samples = list(itertools.islice(numbers, HOURS))
    hours = {number: Hour(count) for number, count in enumerate(samples) if count}
    resources = names.decode().split(",") if names else []
    for key in itertools.product(resources, MEASURES):
        mask = next(numbers)
        there = [hours[number] for number in range(HOURS) if mask >> number & 1]
        changes = [
            -(coded + 1) // 2 if coded % 2 else coded // 2
            for coded in itertools.islice(numbers, len(there))
        ]
        for hour, mean in zip(there, itertools.accumulate(changes), strict=True):
            hour.levels[key] = (mean, mean + next(numbers))
    return hours


def _series(hours: Mapping[int, Hour], key: Key) -> Iterator[int]:
    """Yield the hours that have a measure, the changes of its mean, and maximum less mean."""
    there = [number for number in range(HOURS) if number in hours and key in hours[number].levels]
    yield sum(1 << number for number in there)
    before = 0
    for mean, _ in (hours[number].levels[key] for number in there):
        # Signed numbers alternate: 0, -1, 1, -2, 2 are 0, 1, 2, 3, 4.
        change, before = mean - before, mean
        yield 2 * change if change >= 0 else -2 * change - 1
    for mean, most in (hours[number].levels[key] for number in there):
        yield most - mean


def _read_numbers(data: bytes) -> Sequence[int]:
    found = []
    number = shift = 0
    for byte in data:
        if byte < 0x80:
            found.append(number | byte << shift)
            number = shift = 0
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
    return found


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
