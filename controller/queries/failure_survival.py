"""Tests whether the VMs of any failure domain would find room on other hosts if it failed.

For an operator's call it runs in a child process of low priority, so that the API continues to
answer other calls. A child that takes too long is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.errors import PolicyFailedError
from controller.rounds.failure_domains import failure_domains_of
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.running_state import RunningNames, to_running
from placement.rebalancing.model import RunningState, StayingVm
from placement.rebalancing.spare_capacity import SpareCapacity, spare_capacity
from registry import ConflictError, Registry
from registry.moves import RunningView

#: Maximum number of hosts weighed for VMs. Domains beyond it are reported as not known.
BUDGET_UNITS: Final = 2_000_000
#: Time limit of the process, including its start.
TIME_S: Final = 120.0
#: As for estimates (`controller.queries.wait_estimates`).
NICENESS: Final = 10
_MAX_DOMAINS_SHOWN: Final = 50
_MAX_VMS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingVm:
    """A VM that finds no room elsewhere."""

    vm: str
    why: str  #: in the words of plans of moves
    nearest_host: str | None  #: the host that lacks least; None: more room would not help
    missing: Mapping[str, int]  #: additional room needed there, by resource


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingDomain:
    """A failure domain whose VMs do not all find room on other hosts."""

    name: str
    known: bool  #: False: the search was cut before its result was known
    vms_lacking: int
    vms: tuple[LackingVm, ...]  #: the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """How many failure domains may fail, each alone, without VMs that lack room elsewhere."""

    domain: str  #: host, zone or label:KEY
    domains: int
    hold: int  #: domains whose VMs all find room elsewhere
    not_known: int  #: domains beyond the search budget
    immovable: int  #: VMs that cannot run elsewhere: no room is kept for them
    lacking: tuple[LackingDomain, ...]  #: the first domains whose VMs lack room


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalInputs:
    """Inputs of the child process that tests whether the cluster survives a failure."""

    view: RunningView
    domain: str
    max_domains: int


def survival(registry: Registry, domain: str, *, max_domains: int = _MAX_DOMAINS_SHOWN) -> Survival:
    """Test for each failure domain whether its VMs would find room elsewhere if it failed.

    ``domain`` is ``host``, ``zone`` or ``label:KEY``. For the first ``max_domains`` domains that
    may not fail, the answer lists what their VMs lack; this takes most of the time. Stopped VMs
    count like running ones; waiting requests do not count.
    """
    return compute_survival(
        SurvivalInputs(
            view=registry.plans.view_running(rest_s=0), domain=domain, max_domains=max_domains
        )
    )


def survival_in_child(
    registry: Registry,
    domain: str,
    *,
    process: PolicyProcess | None = None,
    within_s: float = TIME_S,
) -> Survival:
    """Test in a child process which failure domains may fail, as `survival` does.

    Raises
    ------
    ConflictError
        If the child took too long and was killed, or failed.
    """
    inputs = SurvivalInputs(
        view=registry.plans.view_running(rest_s=0), domain=domain, max_domains=_MAX_DOMAINS_SHOWN
    )
    process = process or PolicyProcess(niceness=NICENESS)
    try:
        found: Survival = process.survival(inputs, deadline_s=within_s)
    except PolicyFailedError as error:
        raise ConflictError(f"it was not found out what survives: {error}") from error
    finally:
        process.close()
    return found


def compute_survival(inputs: SurvivalInputs) -> Survival:
    """Compute the failure domains whose VMs would all find room elsewhere if the domain failed."""
    running, names = to_running(inputs.view, to_move=False)
    domains = failure_domains_of(inputs.domain, inputs.view.cluster.hosts)
    found = spare_capacity(
        running, domains.of_host, budget_units=BUDGET_UNITS, max_rows=inputs.max_domains
    )
    in_some = domains.of_host[running.host] >= 0
    lacking = np.flatnonzero(~found.holds)[:_MAX_DOMAINS_SHOWN].tolist()
    return Survival(
        domain=inputs.domain,
        domains=len(domains.names),
        hold=int(found.holds.sum()),
        not_known=int((~found.known).sum()),
        immovable=int((in_some & ~running.movable).sum()),
        lacking=tuple(
            _lacking_domain(each, domains.names[each], found, running, names) for each in lacking
        ),
    )


def _lacking_domain(
    domain: int, name: str, found: SpareCapacity, running: RunningState, names: RunningNames
) -> LackingDomain:
    """Return a failure domain with its VMs that find no room elsewhere."""
    vms = found.lacking.get(domain, ())
    return LackingDomain(
        name=name,
        known=bool(found.known[domain]),
        vms_lacking=len(vms),
        vms=tuple(_lacking_vm(each, running, names) for each in vms[:_MAX_VMS_SHOWN]),
    )


def _lacking_vm(stays: StayingVm, running: RunningState, names: RunningNames) -> LackingVm:
    missing, resources = stays.missing, running.snapshot.resources
    amounts = {} if missing is None else dict(zip(resources, missing.amounts, strict=True))
    return LackingVm(
        vm=names.vms[stays.vm],
        why=stays.why.value,
        nearest_host=None if missing is None else names.snapshot.hosts[missing.host][1],
        missing={name: amount for name, amount in amounts.items() if amount > 0},
    )
