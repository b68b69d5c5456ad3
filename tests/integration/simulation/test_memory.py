"""What a simulation keeps of each request is a few numbers, however long its trace."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from simulation import RunSpec, TraceSpec, simulate

#: Of each request about three VMs are placed, and recorded in seven numbers each.
MAX_BYTES_A_REQUEST = 700


def peak_bytes(requests: int, folder: Path) -> int:
    """Return the most that Python and numpy held at once; as many requests a day in each."""
    spec = RunSpec(
        name="x",
        trace=TraceSpec(path=f"google:{requests}:{requests / 4000}d:30t"),
        hosts="google:60",
        policy="first_fit",
        slot_length_s=300.0,
        ideal_every=10**6,
    )
    tracemalloc.start()
    try:
        simulate(spec, folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_by_a_few_numbers_a_request(tmp_path: Path) -> None:
    peak_bytes(200, tmp_path / "imports")  # what is loaded at first use is not of requests

    short, long = (peak_bytes(number, tmp_path / str(number)) for number in (2000, 8000))

    assert (long - short) / 6000 < MAX_BYTES_A_REQUEST
