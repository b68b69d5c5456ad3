"""Traces drawn from the sample of Azure's: as many VMs as wanted, read like the sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.drawn_trace import SAMPLE, write_drawn
from simulation import RunSpec, TraceSpec
from simulation.experiments.specs import open_inputs


@pytest.mark.parametrize("days", [0.5, 5.0])
def test_a_drawn_trace_has_about_as_many_vms_in_its_days(tmp_path: Path, days: float) -> None:
    write_drawn(tmp_path / "drawn.csv", 20_000, days)
    inputs = open_inputs(spec(tmp_path / "drawn.csv"))

    chunks = list(inputs.trace.chunks())

    arrival_s = np.concatenate([chunk.arrival_s for chunk in chunks])
    assert not inputs.faults.document()["count"]
    assert 15_000 < sum(int(chunk.count.sum()) for chunk in chunks) < 25_000
    assert (np.diff(arrival_s) >= 0).all()
    assert 0.9 * days * 86_400 < arrival_s[-1] < days * 86_400


def test_equal_seeds_draw_equal_traces_and_others_others(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        write_drawn(tmp_path / name, 2000, 1.0, seed=seed)

    one, again, other = ((tmp_path / name).read_bytes() for name in ("one", "again", "other"))
    assert one == again
    assert one != other


def test_vms_are_those_of_the_sample(tmp_path: Path) -> None:
    write_drawn(tmp_path / "drawn.csv", 20_000, 2.0)
    drawn, sample = (shapes(path) for path in (tmp_path / "drawn.csv", SAMPLE))

    assert drawn <= sample
    assert len(drawn) > len(sample) / 2


def shapes(path: Path) -> set[tuple[int, ...]]:
    return {
        tuple(row)
        for chunk in open_inputs(spec(path)).trace.chunks()
        for row in chunk.demand.tolist()
    }


def spec(path: Path) -> RunSpec:
    return RunSpec(name="drawn", trace=TraceSpec(path=str(path)), hosts="1:64c:256g")
