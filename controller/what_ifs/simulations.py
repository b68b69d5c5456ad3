"""The second process of a what-if: simulates the recording unchanged and with the changes."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from controller.what_ifs.site_recording import RECORDING
from registry.requests import ZONE_LABEL
from simulation import InputError, Recording, RunSpec, TraceSpec, read_recording, read_zone_policies
from simulation.experiments.run import ObservedRun, RunProgress, simulate_in_memory
from simulation.experiments.run_report import run_document

#: Part of the time limit for the unchanged site.
_FIRST_PART: Final = 0.45
#: Number of slots at which fair shares are computed: they take most time of slots without a round.
_IDEAL_SAMPLES: Final = 60
_LABEL: Final = "label="


def simulate_both(
    job: Mapping[str, Any], report: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Simulate the site as it is and with the changes of a what-if; return both results."""
    folder, changes = Path(job["folder"]), job["changes"]
    recording = read_recording(folder / RECORDING)
    first = _recording_spec(recording, "as-it-is")
    second = _what_if_spec(
        first, recording, folder, changes
    )  # before the first run, which takes long

    def run(spec: RunSpec, before: float, until_s: float) -> ObservedRun:
        def report_progress(progress: RunProgress) -> None:
            report({"progress": round(before + progress.part / 2, 4)})

        return simulate_in_memory(
            spec, report=report_progress, stop=lambda: time.process_time() > until_s
        )

    as_it_is = run(first, 0.0, _FIRST_PART * job["time_s"])
    cut = []
    if not as_it_is.finished:
        over_s = float(as_it_is.summary["to_s"])
        cut.append(
            f"the first {over_s / 3600:.2f} h of {recording.length_s / 3600:g} h are simulated:"
            f" more takes longer than {job['time_s']:g} s of processor time"
        )
        second = _shorten_spec(second, over_s)
    what_if = run(second, 0.5, job["time_s"])
    if not what_if.finished:
        raise InputError(
            "the time",
            f"both simulations take longer than {job['time_s']:g} s of processor time;"
            " ask for fewer hours, or set FUGA_WHAT_IF_TIME_S",
        )
    return {"as_it_is": run_document(as_it_is), "what_if": run_document(what_if), "cut": cut}


def _recording_spec(recording: Recording, name: str) -> RunSpec:
    """Return the run that simulates a recording as the live system decided it."""
    decided = recording.decided
    zones = read_zone_policies([recording.zones] if recording.zones else [])
    slots = max(1.0, recording.length_s / decided.slot_length_s)
    return RunSpec(
        name=name,
        trace=TraceSpec(path=recording.trace),
        hosts=recording.hosts,
        tree=recording.tree,
        quotas=recording.quota_file,
        policy=decided.policy,
        parameters=decided.parameters,
        zone_policies={zone: its.policy for zone, its in zones.items()},
        zone_parameters={zone: its.parameters or {} for zone, its in zones.items()},
        slot_length_s=decided.slot_length_s,
        budget_units=decided.budget_units,
        fairness_memory_s=decided.fairness_memory_s,
        began_at_s=recording.began_at_s,
        until_s=recording.length_s,
        ideal_every=max(1, int(slots / _IDEAL_SAMPLES)),
    )


def _shorten_spec(spec: RunSpec, until_s: float) -> RunSpec:
    # Its last slot is the last one that the other run decided.
    return RunSpec(**{**_spec_fields(spec), "until_s": until_s + spec.slot_length_s / 2})


def _spec_fields(spec: RunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def _what_if_spec(
    spec: RunSpec, recording: Recording, folder: Path, changes: Mapping[str, Any]
) -> RunSpec:
    """Return the run with changed hosts, weights and policy; write its files."""
    fields = {**_spec_fields(spec), "name": "what-if"}
    inventory = json.loads(Path(recording.hosts).read_text(encoding="utf-8"))
    fields["hosts"] = str(folder / "hosts.json")
    Path(fields["hosts"]).write_text(
        json.dumps(changed_hosts(inventory, changes)), encoding="utf-8"
    )
    if changes["weights"]:
        fields["tree"] = str(folder / "tree.csv")
        _write_weights(Path(recording.tree), Path(fields["tree"]), changes["weights"])
    if changes["policy"] is not None:
        fields |= {"policy": changes["policy"], "parameters": changes["parameters"]}
    if changes.get("fairness_memory_s") is not None:  # what-ifs of earlier versions have none
        fields["fairness_memory_s"] = changes["fairness_memory_s"]
    return RunSpec(**fields)


def changed_hosts(inventory: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an inventory without the removed hosts and with the added ones.

    Raises
    ------
    InputError
        If no host would be left, or the model of the added hosts does not exist.
    """
    hosts = list(inventory["hosts"])
    added = _added_hosts(hosts, changes["add_hosts"]) if changes["add_hosts"] is not None else []
    gone = {
        host["name"]
        for host in hosts
        for selector in changes["remove_hosts"]
        if _is_selected(host, selector)
    }
    left = [host for host in hosts if host["name"] not in gone] + added
    if not left:
        raise InputError("remove_hosts", "no host would be left")
    events = [each for each in inventory["events"] if each["host"] not in gone]
    return {"hosts": left, "events": events}


def _is_selected(host: Mapping[str, Any], selector: str) -> bool:
    if selector.startswith(_LABEL):
        return selector.removeprefix(_LABEL) in host["labels"]
    return bool(host["name"] == selector)


def _added_hosts(
    hosts: list[Mapping[str, Any]], more: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the hosts that a what-if adds, with names that no host has."""
    labels, capacity = list[str](), dict(more["capacity"] or {})
    if more["like"] is not None:
        like = next((host for host in hosts if host["name"] == more["like"]), None)
        if like is None:
            raise InputError("add_hosts", f"host {more['like']} is not there any more")
        labels, capacity = list(like["labels"]), {**like["capacity"], **capacity}
    if more["zone"] is not None:
        labels = [each for each in labels if not each.startswith(ZONE_LABEL)]
        labels.append(f"{ZONE_LABEL}{more['zone']}")
    names = {host["name"] for host in hosts}
    prefix = "added"
    while any(name.startswith(f"{prefix}-") for name in names):
        prefix += "+"
    width = len(str(more["count"]))
    return [
        {"name": f"{prefix}-{number:0{width}}", "labels": labels, "capacity": capacity}
        for number in range(1, more["count"] + 1)
    ]


def _write_weights(tree: Path, changed: Path, weights: Mapping[str, float]) -> None:
    """Write the tree of tenants with its changed weights."""
    with (
        tree.open(encoding="utf-8", newline="") as old,
        changed.open("w", encoding="utf-8", newline="") as new,
    ):
        rows = csv.DictReader(old)
        writer = csv.DictWriter(new, rows.fieldnames or ())
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "weight": weights.get(row["name"], row["weight"])})
