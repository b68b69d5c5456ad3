"""The first process of a what-if: records the site and its recent requests to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from controller.what_ifs.decision_settings import decision_from_round
from registry import Registry
from registry.rounds import ForecastInputs
from simulation import DecidedRounds, record_period
from simulation.errors import InputError
from simulation.recordings.repeated_requests import ObservedLife, repeat_requests

RECORDING: Final = "recording"
_SEED: Final = 0  #: of drawn lifetimes, so that equal questions get equal answers


def record_site(
    job: Mapping[str, Any], _tell: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Write a recording of the site with repeated recent requests; return its summary."""
    registry = Registry.connect(job["database_url"])
    try:
        now = registry.now()
        since = now - timedelta(hours=job["hours"])
        decided = DecidedRounds(
            **decision_from_round(registry.history.last_decision(since, now), job["otherwise"])
        )
        ahead = registry.cluster_queries.forecast_inputs()
        with (
            registry.history.read_period(since, now) as window,
            registry.history.read_period(now, now) as present,
        ):
            found = repeat_requests(
                present, window, _observed_lifetimes(ahead), max_vms=job["max_vms"], seed=_SEED
            )
        recording = record_period(found.past, Path(job["folder"]) / RECORDING, decided)
    finally:
        registry.close()
    if not recording.vms_running + recording.vms_waiting + recording.vms_requested:
        raise InputError(
            f"the last {job['hours']} h", "no VM runs or waits, and none was requested"
        )
    cut = []
    if found.vms_left_out:
        cut.append(
            f"{found.vms_left_out} VMs requested before {found.since.isoformat()} are left out:"
            f" at most {job['max_vms']} are repeated"
        )
    return {
        "at": now.isoformat(),
        "since": since.isoformat(),
        "hours": job["hours"],
        "hosts": recording.hosts_there,
        "vms_running": recording.vms_running,
        "vms_waiting": recording.vms_waiting,
        "vms_repeated": recording.vms_requested,
        "lifetimes_known": found.lifetimes_known,
        "slot_length_s": decided.slot_length_s,
        "policy": decided.policy,
        "decided_by": decided.source,
        "cut": cut,
    }


def _observed_lifetimes(view: ForecastInputs) -> Iterator[ObservedLife]:
    """Yield observed lifetimes by tenant and demand, including those of deleted tenants."""
    names = {tenant.id: tenant.name for tenant in view.cluster.tenants}
    axis = view.cluster.resources
    for each in view.lives:
        yield ObservedLife(
            tenant=names.get(each.tenant_id, str(each.tenant_id)),
            demand=dict(zip(axis, view.demand[each.vm_type_id], strict=True)),
            lived_s=each.lived_s,
            ended=each.ended,
        )
