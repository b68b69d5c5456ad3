"""The benchmark of real traces: its hosts can be read, and a trace can begin late."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from benchmarks.real_traces import TRACES, tasks_since
from simulation.topology.inventory import read_inventory


@pytest.mark.parametrize("name", TRACES)
def test_the_hosts_of_every_trace_are_an_inventory(name: str) -> None:
    inventory = read_inventory(",".join(TRACES[name].hosts))

    assert len(inventory.hosts) == sum(int(each.split(":")[0]) for each in TRACES[name].hosts)


def test_a_trace_that_begins_late_has_what_then_runs_and_what_comes_later(tmp_path: Path) -> None:
    whole = tmp_path / "pods.csv.gz"
    with gzip.open(whole, "wt", newline="") as file:
        file.write("name,creation_time,deletion_time\n")
        file.write("gone,0,100\nruns,50,300\ncomes,200,250\n")

    cut = tasks_since(100, whole, tmp_path / "cut.csv")

    with cut.open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [("runs", "100", "300"), ("comes", "200", "250")]
