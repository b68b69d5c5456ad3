"""Azure's packing trace and Google's task events, in small tables of the published columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from simulation.errors import InputError
from simulation.experiments.specs import RunSpec, SimulationInputs, TraceSpec, open_inputs
from simulation.topology.inventory import read_inventory

DAY_S = 86_400.0
TYPES = """id,vmTypeId,machineId,core,memory,hdd,ssd,nic
1,7,1,0.5,0.25,,0.1,0.05
2,7,2,0.125,0.0625,,0.025,0.0125
3,8,2,0.3333333333333333,1,,0,0.25
4,9,3,1,1,,1,1
"""
VMS = """vmId,tenantId,vmTypeId,priority,starttime,endtime
1,20,7,0,-3.5,0.5
2,21,8,1,0.25,
3,20,9,0,0.5,1
4,20,8,0,1.0,soon
5,22,7,0,1.5,1.75
"""


def opened(path: Path, hosts: str, **trace: object) -> SimulationInputs:
    shown = TraceSpec(path=str(path), **trace)  # type: ignore[arg-type]
    return open_inputs(RunSpec(name="x", trace=shown, hosts=hosts))


def as_csv(folder: Path) -> Path:
    (folder / "vmType.csv").write_text(TYPES)
    (folder / "vm.csv").write_text(VMS)
    return folder / "vm.csv"


def as_sqlite(folder: Path) -> Path:
    path = folder / "packing_trace.sqlite"
    with closing(sqlite3.connect(path)) as database:
        for table, text in (("vmType", TYPES), ("vm", VMS)):
            names, *lines = text.splitlines()
            rows = [[cell or None for cell in line.split(",")] for line in lines]
            database.execute(f"CREATE TABLE {table} ({names})")
            marks = ",".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", reversed(rows))
        database.commit()
    return path


@pytest.mark.parametrize("made", [as_csv, as_sqlite])
def test_a_packing_trace_takes_parts_of_the_machine_that_most_types_run_on(
    tmp_path: Path, made
) -> None:
    inputs = opened(made(tmp_path), "azure:3")

    (chunk,) = inputs.trace.chunks()

    assert inputs.resources == ("cpu_ppm", "hdd_ppm", "memory_ppm", "nic_ppm", "ssd_ppm")
    assert chunk.arrival_s.tolist() == [0, 0.25 * DAY_S, 1.5 * DAY_S]
    assert chunk.lifetime_s.tolist() == [0.5 * DAY_S, np.inf, 0.25 * DAY_S]
    assert chunk.tenant == ("20", "21", "22")
    assert chunk.demand.tolist() == [
        [125_000, 0, 62_500, 12_500, 25_000],
        [333_333, 0, 1_000_000, 250_000, 0],
        [125_000, 0, 62_500, 12_500, 25_000],
    ]
    assert inputs.faults.count == 2
    unknown, unread = sorted(inputs.faults.lines(), key=lambda line: "soon" in line)
    assert "9 does not run on the machine" in unknown
    assert "soon" in unread


def test_bad_rows_of_a_packing_trace_have_their_lines(tmp_path: Path) -> None:
    inputs = opened(as_csv(tmp_path), "azure:3")

    list(inputs.trace.chunks())

    assert [line.split(": ")[0].rsplit(":", 1)[1] for line in inputs.faults.lines()] == ["4", "5"]


def test_a_packing_trace_without_its_types_is_refused(tmp_path: Path) -> None:
    path = as_csv(tmp_path)
    (tmp_path / "vmType.csv").unlink()
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE something (a)")

    with pytest.raises(InputError, match=r"vmType\.csv, is not there"):
        list(opened(path, "azure:3").trace.chunks())
    with pytest.raises(InputError, match="no packing trace: no such table: vmType"):
        list(opened(other, "azure:3").trace.chunks())


def test_machines_of_the_packing_trace_are_whole() -> None:
    inventory = read_inventory("azure:12")

    assert [host.name for host in inventory.hosts[:2]] == ["azure-01", "azure-02"]
    assert set(inventory.hosts[0].capacity.values()) == {1_000_000}


def task_events(folder: Path, *rows: str) -> Path:
    path = folder / "task_events.csv"
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_tasks_live_from_when_they_are_scheduled_to_their_end(tmp_path: Path) -> None:
    never = 2**63 - 1
    path = task_events(
        tmp_path,
        "0,2,10,0,5,0,ann,3,9,0.25,0.125,0.0004,0",  # there before the trace, never scheduled
        "600000000,,11,0,,0,bob,0,0,0.0125,0.01,0,1",
        "600000000,,11,1,,0,bob,0,0,0.0125,0.01,0,1",
        "605500000,,11,0,7,1,bob,0,0,0.0125,0.01,0,1",
        "606000000,,11,1,7,8,bob,0,0,0.5,0.01,0,1",  # an update
        "665500000,,11,0,7,4,bob,0,0,0.0125,0.01,0,1",  # finished
        "670000000,,11,0,,0,bob,0,0,0.0125,0.01,0,1",  # again: another request
        "680000000,,12,0,9,1,cid,0,0,1,1,0,",  # scheduled, its submission is missing
        "690000000,,11,1,,5,bob,0,0,0.0125,0.01,0,1",  # killed before it was scheduled
        f"{never},,12,0,9,4,cid,0,0,1,1,0,",  # outlived the trace
    )
    inputs = opened(path, "google:4")

    (chunk,) = inputs.trace.chunks()

    assert inputs.resources == ("cpu_milli", "memory_mib")
    assert chunk.arrival_s.tolist() == [0, 600, 600, 670, 680]
    assert chunk.lifetime_s.tolist() == [np.inf, 60, 90, np.inf, np.inf]
    assert chunk.tenant == ("ann", "bob", "bob", "bob", "cid")
    assert chunk.demand[[0, 1, 4]].tolist() == [[16_000, 32_768], [800, 2622], [64_000, 262_144]]
    assert [bool(wish.memberships) for wish in chunk.request_constraints] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert inputs.faults.count == 0
    assert inputs.inventory.hosts[0].capacity["cpu_milli"] % 1000 == 0


def test_bad_task_events_are_told_with_their_lines(tmp_path: Path) -> None:
    path = task_events(
        tmp_path,
        "0,,1,0,,0,ann,0,0,,0.1,0,0",
        "0,,1,1,,9,ann,0,0,0.1,0.1,0,0",
        "0,,1,2,,0,ann,0,0,0.1,1.5,0,0",
        "later,,1,3,,0,ann,0,0,0.1,0.1,0,0",
        "0,,1,4,,0,ann,0,0,0.1,0.1,0",
        "5000000,,1,5,,0,ann,0,0,0.1,0.1,0,0",
    )
    inputs = opened(path, "google:4")

    (chunk,) = inputs.trace.chunks()

    assert len(chunk) == 1
    shown = inputs.faults.lines()
    assert [line.split(": ")[0].rsplit(":", 1)[1] for line in shown] == ["1", "2", "3", "4", "5"]
    assert "cpu_request: missing" in shown[0]
    assert "event: found 9" in shown[1]
    assert "part of the largest machine" in shown[2]
