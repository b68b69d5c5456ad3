"""Traces and inventories: what is read, and how what is wrong is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simulation.errors import InputError
from simulation.experiments.specs import RunSpec, SimulationInputs, TraceSpec, open_inputs
from simulation.slots.cluster import Cluster
from simulation.topology.hosts import HostEventKind
from simulation.topology.inventory import read_inventory


def opened(path: Path, hosts: str = "4:64c:256g:100d", **trace: object) -> SimulationInputs:
    shown = TraceSpec(path=str(path), **trace)  # type: ignore[arg-type]
    return open_inputs(RunSpec(name="x", trace=shown, hosts=hosts))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_native_trace_says_who_asks_for_what_and_when(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "trace.csv",
        "arrival_s,lifetime_s,tenant,vcpus,memory_mib,count,min_count,requires,anti_affinity\n"
        "0,60,a,2,4096,3,2,ssd;zone=a,web\n"
        "5.5,,b,1,1024,,,,\n",
    )

    (chunk,) = opened(path).trace.chunks()

    assert chunk.arrival_s.tolist() == [0, 5.5]
    assert chunk.lifetime_s.tolist() == [60, np.inf]
    assert chunk.tenant == ("a", "b")
    assert chunk.demand.tolist() == [[2, 4096, 0], [1, 1024, 0]]
    assert chunk.count.tolist() == [3, 1]
    assert chunk.min_count.tolist() == [2, 1]
    assert chunk.request_constraints[0].requires == ("ssd", "zone=a")
    assert chunk.request_constraints[0].rules.anti_affinity is not None


def test_bad_rows_are_told_with_file_and_line_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "trace.csv",
        "arrival_s,lifetime_s,tenant,vcpus,memory_mib,count\n"
        "0,60,a,2,4096,1\n"
        "soon,60,a,2,4096,1\n"
        "1,-1,a,2,4096,1\n"
        "2,60,a,2.5,4096,1\n"
        "3,60,a,2,4096\n"
        "4,60,a,2,4096,0\n"
        "5,60,a,2,4096,1\n",
    )
    inputs = opened(path)

    (chunk,) = inputs.trace.chunks()

    assert chunk.arrival_s.tolist() == [0, 5]
    assert inputs.faults.count == 5
    assert inputs.faults.lines() == [
        f"{path}:3: arrival_s: found 'soon', expected a number",
        f"{path}:4: lifetime_s: found '-1', expected 0 or more",
        f"{path}:5: vcpus: found '2.5', expected a whole number from 0 to {2**40}",
        f"{path}:6: 5 fields, expected 6",
        f"{path}:7: count: found '0', expected a whole number from 1 to 1000000",
    ]


def test_a_trace_out_of_order_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "trace.csv", "arrival_s,vcpus\n5,1\n4,1\n")

    with pytest.raises(InputError, match=r"trace\.csv:3: arrival_s 4 is before 5"):
        list(opened(path).trace.chunks())


def test_what_no_host_has_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "trace.csv", "arrival_s,vcpus,gpu\n5,1,1\n")

    with pytest.raises(InputError, match="no host has gpu"):
        opened(path)


def test_types_stand_for_their_resources(tmp_path: Path) -> None:
    types = write(tmp_path, "types.csv", "name,vcpus,memory_mib\nsmall,1,2048\n")
    path = write(tmp_path, "trace.csv", "arrival_s,vm_type\n0,small\n1,large\n")
    inputs = opened(path, types=str(types))

    (chunk,) = inputs.trace.chunks()

    assert chunk.demand.tolist() == [[1, 2048, 0]]
    assert inputs.faults.lines() == [f"{path}:3: vm_type: no type 'large' in the file of types"]


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    columns = {
        "arrival_s": [0.0, 1.0],
        "lifetime_s": [None, 7.0],
        "vcpus": [1, -1],
        "count": [2, 1],
    }
    pq.write_table(pa.table(columns), path)
    inputs = opened(path)

    (chunk,) = inputs.trace.chunks()

    assert chunk.count.tolist() == [2]
    assert chunk.lifetime_s.tolist() == [np.inf]
    assert inputs.faults.count == 1


def test_tenants_fold_and_samples_keep_whole_tenants(tmp_path: Path) -> None:
    rows = "".join(f"{n},t{n % 40},1\n" for n in range(400))
    path = write(tmp_path, "trace.csv", "arrival_s,tenant,vcpus\n" + rows)

    folded = {t for chunk in opened(path, tenants=3).trace.chunks() for t in chunk.tenant}
    kept = [t for chunk in opened(path, sample=0.5).trace.chunks() for t in chunk.tenant]

    assert folded == {"tenant-0", "tenant-1", "tenant-2"}
    assert 0 < len(set(kept)) < 40
    assert len(kept) == 10 * len(set(kept))


def test_azure_batches_become_requests_of_a_tenant_each(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "azure.csv",
        "vm_id,arrival_s,batch_id,flavor,vcpus,memory_gb,duration_bin,duration_min_s,"
        "duration_max_s,censored\n"
        "0,300,7,b,1,1.75,2,600,600,False\n"
        "1,300,7,b,1,1.75,2,600,600,False\n"
        "2,300,7,b,1,1.75,9,1,900,True\n"
        "3,600,8,m,8,14.0,2,600,600,False\n",
    )

    (chunk,) = opened(path).trace.chunks()

    assert chunk.count.tolist() == [2, 1, 1]
    assert chunk.tenant == ("batch-7", "batch-7", "batch-8")
    assert chunk.lifetime_s.tolist() == [600, np.inf, 600]
    assert chunk.demand[:, :2].tolist() == [[1, 1792], [1, 1792], [8, 14336]]


def test_an_azure_vm_table_has_no_names_and_is_sorted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "vmtable.csv",
        "v1,sub1,dep1,600,1200,1,1,1,Unknown,2,4\nv2,sub2,dep2,0,300,1,1,1,Unknown,1,1.75\n",
    )

    (chunk,) = opened(path).trace.chunks()

    assert chunk.tenant == ("sub2", "sub1")
    assert chunk.lifetime_s.tolist() == [300, 600]


def test_huawei_vms_have_no_tenants(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "huawei.csv",
        "vm_id,arrival_s,departure_s,lifetime_s,vcpus,memory_gb\n0,2,196,194,4,16\n",
    )

    (chunk,) = opened(path).trace.chunks()

    assert chunk.tenant == ("all",)
    assert chunk.demand[:, :2].tolist() == [[4, 16384]]


def test_alibaba_tasks_name_the_gpus_that_will_do(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv.gz"
    with gzip.open(pods, "wt") as file:
        file.write(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
            "deletion_time,scheduled_time\n"
            "p1,12000,16384,1,460,T4,LS,Running,10,70,10\n"
            "p0,4000,8192,0,0,,BE,Running,5,,5\n"
        )
    nodes = write(tmp_path, "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,2,T4\n")

    inputs = opened(pods, hosts=str(nodes))
    (chunk,) = inputs.trace.chunks()

    assert inputs.resources == ("cpu_milli", "memory_mib", "gpu_milli")
    assert chunk.demand.tolist() == [[4000, 8192, 0], [12000, 16384, 460]]
    assert "gpu=T4" not in chunk.request_constraints[1].rules.forbids
    assert "gpu=A10" in chunk.request_constraints[1].rules.forbids
    assert inputs.inventory.hosts[0].labels == ("gpu=T4",)
    assert dict(inputs.inventory.hosts[0].capacity)["gpu_milli"] == 2000


def test_alibaba_instances_keep_apart_where_their_hosts_take_one(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "dlrm.csv",
        "instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,"
        "scheduled_time,deletion_time\n"
        "i0,HN,app,12,1,25,120.5,121,640.0,800,1,,,90\n",
    )

    (chunk,) = opened(path, hosts="2:64c:256g:2000d:8gpu:100rdma_percent").trace.chunks()

    assert chunk.arrival_s.tolist() == [0]
    assert chunk.demand.tolist() == [[12, 123392, 640, 1, 25]]
    assert chunk.request_constraints[0].memberships[0][0] is True


def test_the_short_form_of_an_inventory() -> None:
    inventory = read_inventory("10:64c:256g,2:128c:1024g:8gpu")

    assert len(inventory.hosts) == 12
    assert [host.name for host in inventory.hosts][:2] == ["a-01", "a-02"]
    assert dict(inventory.hosts[-1].capacity) == {"vcpus": 128, "memory_mib": 2**20, "gpu": 8}
    assert inventory.resources == ("vcpus", "memory_mib", "gpu")


def test_hosts_are_labelled_added_and_left_out(tmp_path: Path) -> None:
    trace = write(tmp_path, "t.csv", "arrival_s,vcpus\n0,1\n")
    spec = RunSpec(
        name="",
        trace=TraceSpec(path=str(trace)),
        hosts="2:8c:label=zone=a:label=ssd,1:4c",
        add_hosts=("1:16c", "2:8c:label=ssd"),
        without_hosts=("a-1", "b"),
    )

    hosts = open_inputs(spec).inventory.hosts

    assert [(host.name, host.labels, host.host_class) for host in hosts] == [
        ("a-2", ("ssd", "zone=a"), "8c:zone=a:ssd"),
        ("added-a", (), "16c"),
        ("added2-a-1", ("ssd",), "8c:ssd"),
        ("added2-a-2", ("ssd",), "8c:ssd"),
    ]


def test_added_hosts_without_what_every_vm_takes_are_refused(tmp_path: Path) -> None:
    trace = write(tmp_path, "t.csv", "arrival_s,vcpus,disk_gib,gpu\n0,1,10,1\n")

    def spec(added: str) -> RunSpec:
        shown = TraceSpec(path=str(trace))
        return RunSpec(name="", trace=shown, hosts="2:8c:300d:1gpu", add_hosts=(added,))

    with pytest.raises(InputError, match=r"no disk_gib, which .* as in 20:64c:256g:300d"):
        open_inputs(spec("20:64c:256g"))
    # A host without GPUs takes the VMs that want none.
    assert len(open_inputs(spec("20:64c:256g:300d")).inventory.hosts) == 22


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"add_hosts": ("2:8c:label=a b",)}, "2:8c:label=a b: label"),
        ({"add_hosts": ("2:8c:ssd",)}, "'ssd' is neither a number .* nor label=NAME"),
        ({"add_hosts": ("0:8c",)}, "expected COUNT:CORESc:MEMORYg"),
        (
            {"without_hosts": ("rack-*",)},
            r"--without-hosts rack-\*: no host of that name; a-1, a-2",
        ),
        ({"without_hosts": ("a-*",)}, r"--without-hosts a-\*: no hosts"),
    ],
)
def test_hosts_that_cannot_be_added_or_left_out_are_refused(
    tmp_path: Path, told: dict[str, Any], says: str
) -> None:
    trace = write(tmp_path, "t.csv", "arrival_s,vcpus\n0,1\n")
    spec = RunSpec(name="", trace=TraceSpec(path=str(trace)), hosts="2:8c", **told)

    with pytest.raises(InputError, match=says):
        open_inputs(spec)


def test_an_inventory_of_csv_and_of_json_say_the_same(tmp_path: Path) -> None:
    table = write(
        tmp_path,
        "hosts.csv",
        "name,count,labels,vcpus,memory_mib,join_s,leave_s\nh,2,ssd;zone=a,8,4096,60,\n",
    )
    document = {
        "hosts": [
            {
                "name": "h",
                "count": 2,
                "labels": ["zone=a", "ssd"],
                "capacity": {"vcpus": 8, "memory_mib": 4096},
            }
        ],
        "events": [
            {"at_s": 60, "host": "h-1", "event": "join"},
            {"at_s": 60, "host": "h-2", "event": "join"},
        ],
    }
    other = write(tmp_path, "hosts.json", json.dumps(document))

    assert read_inventory(str(table)) == read_inventory(str(other))


def test_google_machines_are_scaled_and_their_events_are_kept(tmp_path: Path) -> None:
    machines = write(tmp_path, "machines.csv", "machine_id,cpu,memory\n5,0.5,0.25\n")
    events = write(
        tmp_path,
        "events.csv",
        "0,5,0,x,0.5,0.25\n0,6,0,x,1,1\n9000000,5,1,x,0.5,0.25\n12000000,5,0,x,0.5,0.25\n",
    )

    (host,) = read_inventory(str(machines)).hosts
    inventory = read_inventory(str(events))

    assert (host.name, dict(host.capacity)) == ("m5", {"vcpus": 32, "memory_mib": 65536})
    assert [(each.at_s, each.what) for each in inventory.events] == [
        (9, HostEventKind.LEAVE),
        (12, HostEventKind.JOIN),
    ]
    assert Cluster.of(inventory, ("vcpus",)).present.all()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name,vcpus\nh,many\n", "hosts.csv:2: vcpus: found 'many'"),
        ("name,vcpus\nh,1\nh,2\n", "host h stands twice"),
        ("name,vcpus\n", "no hosts"),
        ("vcpus\n1\n", "an inventory has name"),
        ("name,vcpus,vcpus\nh,1,2\n", "two columns are called 'vcpus'"),
    ],
)
def test_a_bad_inventory_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_inventory(str(write(tmp_path, "hosts.csv", text)))


def test_a_workload_is_the_same_for_the_same_seed_and_grows_by_day() -> None:
    def made(seed: int) -> SimulationInputs:
        spec = RunSpec(
            name="x", trace=TraceSpec(path="google:9000:2d:30t"), hosts="google:50", seed=seed
        )
        return open_inputs(spec)

    once, again, other = (list(made(seed).trace.chunks()) for seed in (1, 1, 2))

    arrivals = np.concatenate([chunk.arrival_s for chunk in once])
    assert [len(chunk) for chunk in once] == [8192, 808]
    np.testing.assert_array_equal(arrivals, np.concatenate([c.arrival_s for c in again]))
    assert not np.array_equal(arrivals[:8192], other[0].arrival_s)
    assert (np.diff(arrivals) >= 0).all()
    assert 1.8 * 86400 < arrivals[-1] < 2.2 * 86400
    day = ((arrivals % 86400) < 43200).mean()  # the first half of each day has more
    assert 0.6 < day < 0.72
    tenants = sorted(made(1).trace.chunks().__next__().tenant)
    assert tenants.count("tenant-01") > 5 * tenants.count("tenant-20")
    assert len(made(1).inventory.hosts) == 50


@pytest.mark.parametrize("told", ["google:", "google:x", "google:10:0d", "google:10:1d:0t"])
def test_a_workload_that_cannot_be_is_refused(told: str) -> None:
    with pytest.raises(InputError):
        open_inputs(RunSpec(name="x", trace=TraceSpec(path=told), hosts="2:4c:4g"))
