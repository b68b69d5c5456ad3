"""A site of two tenants at which much has gone wrong, full of words that no tenant may read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controller.rest import create_app
from controller.rounds.policy_process import PolicyProcess
from registry import HostAdminEvent, Registry, VmDesiredEvent, VmObserved
from registry.moves import MoveLimits
from registry.requests import WaitingStatus
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.integration.registry.test_images import add_image, upload_of
from tests.register import (
    a_commit,
    a_report,
    add_host,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
    start_vm,
    take_lease,
)
from tests.servers.http_client import a_client

OPERATOR = "canary-operator"
WORKER = "canary-worker.example.org:77"
RIVAL = "canary-rival"
RIVAL_TYPE = "canary-type"
ADDRESS = "10.231.7."
#: As libvirt and workers put it, with all that says which machine it is.
FAILED = (
    "host {name} does not answer at qemu+tcp://{hostname}:16509/system: unable to connect to "
    "server at '{address}:16509': Connection refused; {hostname} and {short} say: cannot open "
    "/var/lib/canary-pool/disk-7.qcow2 with credential canary-credential ([fd00:231::7]:16509)"
)


def hostname(number: int) -> str:
    return f"canary-machine-{number}.example.org"


def failed(number: int) -> str:
    whole = hostname(number)
    return FAILED.format(
        name=host_name(number),
        hostname=whole,
        short=whole.partition(".")[0],
        address=f"{ADDRESS}{number}",
    )


def host_name(number: int) -> str:
    return f"canary-host-{number}"


@dataclass(frozen=True)
class Site:
    """The site, the tenant's client, and what the tenant may not read."""

    registry: Registry
    app: Any
    tenant: Any
    operator: Any
    secret: str  #: the tenant's token
    forbidden: Collection[str]

    @property
    def hosts(self) -> list[str]:
        return [host_name(number) for number in range(1, 6)]


def a_site(registry: Registry, decider: PolicyProcess, **settings: Any) -> Site:
    """Let both tenants have VMs on the same hosts, and let most things fail once."""
    app = create_app(registry, console_wait_s=0.01, **settings)
    add_tenant(registry, "a")
    add_tenant(registry, RIVAL, weight=2.0)
    add_vm_type(registry, "small")
    add_vm_type(registry, RIVAL_TYPE, vcpus=2)
    hosts = [
        add_host(
            registry,
            host_name(number),
            uri=uri_of(number),
            vcpus=4,
            labels=("ssd", f"zone={'east' if number < 4 else 'west'}"),
        )
        for number in range(1, 6)
    ]
    for number, host in enumerate(hosts, start=1):
        registry.hosts.record_report(host.id, a_report(vcpus=4, hostname=hostname(number)))
    operator = a_client(app, token=a_token(registry, None, OPERATOR))
    secret = a_token(registry, "a", "laptop")
    tenant = a_client(app, token=secret)
    network = {
        "name": "lan",
        "default": {"name": "canary-bridge"},
        "subnet": {"cidr": "10.0.0.0/24"},
    }
    assert operator.post("/v1/networks", json=network).status_code == 201
    site = Site(registry, app, tenant, operator, secret, ())
    _fill(site, decider)
    return Site(registry, app, tenant, operator, secret, _forbidden(site, hosts))


def _ask(site: Site, tenant: str, count: int, **fields: Any) -> str:
    body = {"vm_type": "small", "count": count, "tenant": tenant, **fields}
    answer = site.operator.post("/v1/requests", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def _fill(site: Site, decider: PolicyProcess) -> None:
    registry = site.registry
    add_image(registry)
    _ask(site, RIVAL, 4, vm_type=RIVAL_TYPE, name="canary-request")
    _ask(site, "a", 4, name="web", rules={"anti_affinity": {"group": "apart"}})
    _ask(site, "a", 1, name="named", hosts=[host_name(2), host_name(1)])
    _ask(site, "a", 1, name="imaged", image="debian", network="lan")
    run_slot(registry, decider, 1)
    upload_of(registry)
    site.operator.patch(f"/v1/hosts/{host_name(4)}", json={"admin": "draining"})
    _ask(site, "a", 9, name="waits", rules={"forbids": ["old"]})
    _ask(site, RIVAL, 9, vm_type=RIVAL_TYPE)
    run_slot(registry, decider, 2)
    own = [vm for vm in registry.vms.list(tenant="a").items if vm.assignment_id is not None]
    runs, fails, removed, *_ = [vm for vm in own if vm.name.startswith("web")]
    assert runs.assignment_id is not None
    assert fails.assignment_id is not None
    assert removed.assignment_id is not None
    build = start_vm(registry, runs.assignment_id, WORKER)
    registry.assignments.mark_running(build.claim)
    for vm in (fails, removed):
        claimed = registry.assignments.claim_build(vm.assignment_id, WORKER, 60)
        assert claimed is not None
        registry.assignments.record_failure(claimed.claim, failed(1), transient=False)
    remove_vm(registry, removed.assignment_id, WORKER)
    _switch(site, runs.id)
    _type(site, runs.id)
    registry.hosts.record_miss(
        registry.hosts.get(host_name(3)).id, failed(3), unreachable_after=1, down_after=1
    )
    registry.hosts.change_admin(host_name(5), HostAdminEvent.DRAIN, actor=f"operator:{OPERATOR}")
    _hold_back(site)
    _move(site)


def _move(site: Site) -> None:
    """Let a VM of the tenant fail to move, be kept from it, and move."""
    registry, actor = site.registry, f"operator:{OPERATOR}"
    here, there = (
        add_host(registry, host_name(number), uri=uri_of(number), domain_type="qemu")
        for number in (28, 29)
    )
    request = registry.requests.create(
        count=1, name="moves", tenant="a", vm_type="small", actor="tenant:a"
    )
    [key] = place(registry, request, here).assignment_ids
    build = run_vm(registry, key, WORKER)

    def ask() -> Any:
        move = registry.moves.create(
            build.vm_id, there.name, reason=f"{hostname(28)} at {ADDRESS}28 has no fan", actor=actor
        )
        step = registry.move_steps.claim(move.id, WORKER, 60, MoveLimits(per_host=2, everywhere=8))
        assert step is not None
        return step

    def clear(assignment_id: Any) -> None:
        removal = registry.assignments.claim_removal(assignment_id, WORKER, 60)
        assert removal is not None
        registry.assignments.release(removal.claim)

    fails = ask()
    registry.move_steps.record_failure(fails.claim, failed(29))
    clear(fails.to.claim.assignment_id)
    ends = ask()
    registry.moves.cancel(ends.claim.move_id, actor=actor)
    registry.move_steps.record_failure(ends.claim, failed(29))
    clear(ends.to.claim.assignment_id)
    assert registry.move_steps.record_arrival(ask().claim, VmObserved.RUNNING, downtime_ms=7)


def uri_of(number: int) -> str:
    return f"qemu+tcp://{hostname(number)}/system"


def _switch(site: Site, vm_id: Any) -> None:
    """Let an operator stop a VM, and a worker fail at it."""
    actor = f"operator:{OPERATOR}"
    site.registry.vms.change_power(vm_id, VmDesiredEvent.STOP, timeout_s=60, actor=actor)
    step = site.registry.power.claim(vm_id, WORKER, 60)
    assert step is not None
    site.registry.power.retry_later(step.claim, failed(2))


def _type(site: Site, vm_id: Any) -> None:
    """Let an operator's console be lost, and the tenant's end by a failure."""
    sessions, holds = site.registry.console_sessions, site.registry.console_holds
    for actor in (f"operator:{OPERATOR}", "tenant:a"):
        opened = sessions.open(vm_id, actor=actor, force=True)
        work = holds.claim(opened.id, WORKER, 60)
        assert work is not None
        holds.mark_attached(work.claim)
    holds.mark_ended(work.claim, failed(1))


def _hold_back(site: Site) -> None:
    """Write what a round says of requests that starve, and whose fallback decided."""
    registry = site.registry
    held = next(each for each in registry.requests.list(tenant="a").items if each.name == "waits")
    detail = {**(held.waiting.detail if held.waiting is not None else {})}
    detail["holding"] = [{"host": host_name(1)}, {"host": host_name(2)}]
    commit = a_commit(
        take_lease(registry, "cc-1"),
        waiting={held.id: WaitingStatus(count=9, reason="no_room", detail=detail)},
        decided_by="fallback",
        fallback_reason=failed(1),
        shares=[{"tenant": "a", "after": 0.5}, {"tenant": RIVAL, "after": 0.5}],
    )
    registry.rounds.commit_round(commit)


def _forbidden(site: Site, hosts: list[Any]) -> Collection[str]:
    """Return every word that is of hosts, operators, processes or the other tenant."""
    rivals = site.registry.requests.list(tenant=RIVAL).items
    vms = site.registry.vms.list(tenant=RIVAL, include_deleted=True).items
    ids = [*hosts, *rivals, *vms, site.registry.tenants.get(RIVAL)]
    return (
        "canary",  # in every name above
        ADDRESS,
        "fd00:231",
        "qemu+tcp",
        ":16509",  # digits alone are in a random id now and then
        *(str(each.id) for each in ids),
        *(vm.name for vm in vms),
    )
