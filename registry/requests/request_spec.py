"""Specifications of requests: checks without the database, and the rows made from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.audit.events import event_row
from registry.db.audit_context import AuditedCall
from registry.db.ids import uuid7
from registry.db.names import check_int, check_labels, check_new_name, expires_at, lookup_name
from registry.db.row_conversion import row_of
from registry.db.schema import hosts, requests
from registry.errors import InvalidError, NotFoundError
from registry.lifecycle import HostAdmin, RequestState, VmDesired, VmObserved
from registry.records.images import Image
from registry.records.journal import IdempotencyKey
from registry.records.requests import GuestAccess, NewVolume, Request, Rules
from registry.records.tenancy import OverQuota
from registry.records.volumes import MAX_ATTACHED, MAX_SIZE_GIB
from registry.requests.guest_access import NO_ACCESS, NOTHING, access_summary, check_access
from registry.requests.own_labels import check_own_labels
from registry.requests.rules import NO_RULES, check_combination, check_hosts_suffice, check_rules

#: Limit of a requested host name, so that a number still fits into 253 characters.
MAX_LENGTH: Final = 240
_WHOLE_LENGTH: Final = 253
_LABEL_LENGTH: Final = 63
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def check_hostname(field: str, name: str) -> str:
    """Return the host name of a request's guests, or raise `InvalidError`."""
    if len(name) > MAX_LENGTH or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        allowed = (
            f"a host name as of RFC 1123: parts of 1 to {_LABEL_LENGTH} letters, digits and '-',"
            f" first and last no '-', joined by '.', {MAX_LENGTH} characters at most"
        )
        raise InvalidError(field, name, allowed)
    if name.rpartition(".")[2].isdigit():  # as an address such as 1.2.3.4, which resolvers read
        allowed = (
            "a host name whose last part is not a number, as of RFC 1123: 1.2.3.4 is an address"
        )
        raise InvalidError(field, name, allowed)
    if _is_local(name):
        raise InvalidError(field, name, "another name: each machine calls itself that")
    return name


def _is_local(name: str) -> bool:
    """Return whether guests resolve a host name to themselves (RFC 6761)."""
    parts = name.lower().split(".")
    return parts[-1] in {"localhost", "localdomain"} or parts[0] == "localhost"


def numbered_hostname(name: str, number: int) -> str:
    """Return the host name of one of a request's VMs: the number follows the name's first part."""
    first, dot, rest = name.partition(".")
    suffix = f"-{number}"
    max_length = min(_LABEL_LENGTH, _WHOLE_LENGTH - len(dot + rest)) - len(suffix)
    return first[:max_length].rstrip("-") + suffix + dot + rest


MAX_COUNT: Final = 10_000
MAX_HOSTS: Final = 1_000
MAX_PRIORITY: Final = 100  #: and as far below 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """The specification of a request; `check_spec` validates it.

    After ``ttl_s`` the request ends by itself. Requests of one tenant go by ``priority``.
    """

    tenant: str
    vm_type: str
    count: int
    min_count: int = 1
    name: str | None = None
    requires: Sequence[str] = ()
    hosts: Sequence[str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl_s: int | None = None
    image: str | None = None
    network: str | None = None
    ssh_keys: Sequence[str] = ()
    user_data: bytes | None = field(default=None, repr=False)  #: never to be logged
    user_data_ignored: str | None = None  #: why cloud-init will ignore it
    hostname: str | None = None
    rules: Rules = NO_RULES
    priority: int = 0
    spot: bool = False
    reservation: UUID | None = None
    max_count: int | None = None  #: VMs at most; those beyond ``count`` are borrowed
    volumes: Sequence[str] = ()  #: names of the volumes that its only VM starts with
    new_volumes: Sequence[NewVolume] = ()  #: to be created for each VM

    @property
    def access(self) -> GuestAccess:
        """The SSH keys and user data for the request's guests."""
        return GuestAccess(
            ssh_keys=tuple(self.ssh_keys),
            user_data=self.user_data or None,
            ignored=self.user_data_ignored,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreateRequestCommand:
    """One call that creates a request: its specification, actor, idempotency key and audit.

    Parameters
    ----------
    over_quota : OverQuota
        Counts where no tenant or group says otherwise.
    idempotency : IdempotencyKey, optional
        Lets this be done once; another call with the same key waits.
    call : AuditedCall, optional
        Gets its row of the audit where several are accepted together.
    """

    spec: RequestSpec
    actor: str
    over_quota: OverQuota = "refuse"
    idempotency: IdempotencyKey | None = None
    call: AuditedCall | None = None


def check_spec(spec: RequestSpec) -> RequestSpec:
    """Return a request's specification in its stored form, or raise `InvalidError`.

    This needs no database. ``spot`` VMs are in no VM group: VMs placed with them would
    depend on them.
    """
    rules = spec.rules
    if spec.spot and (rules.affinity or rules.anti_affinity):
        raise InvalidError("rules", "affinity or anti_affinity", "no VM group for spot VMs")
    if spec.reservation is not None:
        if spec.spot:
            raise InvalidError("spot", True, "no spot VMs on a reservation, which keeps room")
        if rules.affinity or rules.anti_affinity or rules.spread:
            allowed = "no VM group and no spread on a reservation: its room is where it is"
            raise InvalidError("rules", "affinity, anti_affinity or spread", allowed)
    max_count = spec.max_count
    if max_count is not None:
        check_int("max_count", max_count, spec.count, MAX_COUNT)
        max_count = max_count if max_count > spec.count else None
    if max_count is not None:
        check_elastic_request(spec)
    if spec.volumes or spec.new_volumes:
        check_volumes(spec)
    if rules != NO_RULES:
        check_hosts_suffice(rules, spec.hosts, spec.count)
    if rules != NO_RULES or spec.requires:
        check_combination(rules, spec.requires)
    access = spec.access
    if access != NO_ACCESS:
        access = check_access(spec.ssh_keys, spec.user_data, spec.user_data_ignored)
    return replace(
        spec,
        count=check_int("count", spec.count, 1, MAX_COUNT),
        min_count=check_int("min_count", spec.min_count, 1, spec.count),
        requires=check_labels("requires", spec.requires),
        labels=check_own_labels(spec.labels) if spec.labels else {},
        ssh_keys=access.ssh_keys,
        user_data=access.user_data,
        user_data_ignored=access.ignored,
        rules=check_rules(rules, spec.count) if rules != NO_RULES else NO_RULES,
        priority=check_int("priority", spec.priority, -MAX_PRIORITY, MAX_PRIORITY),
        hostname=None if spec.hostname is None else check_hostname("hostname", spec.hostname),
        name=None if spec.name is None else check_new_name("name", spec.name),
        max_count=max_count,
    )


def check_elastic_request(spec: RequestSpec | Request) -> None:
    """Raise `InvalidError` if a request that borrows VMs has what borrowed VMs do not go with."""
    rules = spec.rules
    for wrong, what in (
        (spec.spot, "no spot VMs: they use spare room already"),
        (spec.reservation is not None, "no reservation, whose room is no more than it keeps"),
        (rules.affinity or rules.anti_affinity, "no VM group: others would depend on them"),
        (rules.spread, "no spread: its zones would depend on them"),
        (spec.network is not None, "no network of its own: its addresses are for VMs that stay"),
        (spec.volumes or spec.new_volumes, "no volumes: their data would depend on them"),
    ):
        if wrong:
            raise InvalidError("max_count", spec.max_count, f"with borrowed VMs {what}")


def check_volumes(spec: RequestSpec) -> None:
    """Raise `InvalidError` unless the VMs of a request can start with its volumes."""
    if spec.volumes and spec.count != 1:
        allowed = (
            f"one VM, not {spec.count}: a volume has one VM at a time; new volumes are created for"
            " each VM"
        )
        raise InvalidError("volumes", ", ".join(spec.volumes), allowed)
    if spec.reservation is not None:
        allowed = "none on a reservation: its room is where it is, and has none for volumes"
        raise InvalidError("volumes" if spec.volumes else "new_volumes", "given", allowed)
    names = [*spec.volumes, *(each.name for each in spec.new_volumes)]
    if len(names) > MAX_ATTACHED:
        raise InvalidError("volumes", len(names), f"at most {MAX_ATTACHED} for each VM")
    for name in spec.volumes:
        lookup_name("volume", name)
    for each in spec.new_volumes:
        check_new_name("new_volumes", each.name)
        check_new_name("new_volumes", f"{each.name}-{spec.count}" if spec.count > 1 else each.name)
        check_int("new_volumes", each.size_gib, 1, MAX_SIZE_GIB)
    if twice := sorted(name for name, number in Counter(names).items() if number > 1):
        raise InvalidError("volumes", ", ".join(twice), "each name once")


def new_request(
    spec: RequestSpec, image: Image | None, hosts: tuple[str, ...] | None, *, now: datetime
) -> Request:
    """Return the record of a new request from its checked specification."""
    key = uuid7()
    keys, user_data, warnings = access_summary(spec.access) if spec.access != NO_ACCESS else NOTHING
    return Request(
        id=key,
        name=spec.name if spec.name is not None else f"req-{key.hex[-10:]}",
        tenant=spec.tenant,
        vm_type=spec.vm_type,
        count=spec.count,
        min_count=spec.min_count,
        requires=tuple(spec.requires),
        hosts=hosts,
        rules=spec.rules,
        priority=spec.priority,
        spot=spec.spot,
        reservation=spec.reservation,
        max_count=spec.max_count,
        volumes=tuple(spec.volumes),
        new_volumes=tuple(spec.new_volumes),
        state=RequestState.PENDING,
        waiting=None,
        vms_wanted=spec.count,
        vms_placed=0,
        vms_running=0,
        created_at=now,
        updated_at=now,
        labels=spec.labels,
        expires_at=expires_at(spec.ttl_s, now),
        hostname=spec.hostname,
        image=image.reference if image is not None else None,
        network=spec.network,
        ssh_keys=keys,
        user_data=user_data,
        warnings=warnings,
    )


def request_row(made: Request, owner: UUID, type_id: UUID) -> dict[str, Any]:
    """Return the row of a new request."""
    rules = made.rules
    return row_of(
        requests,
        made,
        tenant_id=owner,
        vm_type_id=type_id,
        forbids=list(rules.forbids),
        prefers=list(rules.prefers),
        new_volumes=[asdict(each) for each in made.new_volumes],
        zone=rules.zone,
        spread=rules.spread,
        reservation_id=made.reservation,
    )


def numbered_names(name: str, first: int, count: int) -> list[str]:
    """Return ``count`` VM names of a request from number ``first`` on: `web-1`, `web-2`, …"""
    return [f"{name}-{number}" for number in range(first, first + count)]


def vm_rows(
    request: Request | Row[Any],
    owner: UUID,
    numbers: Sequence[int],
    *,
    now: datetime,
    borrowed: bool = False,
) -> list[dict[str, Any]]:
    """Return the rows of VMs of a request with these numbers.

    A single VM has the request's host name as it is; several VMs have it with their numbers.
    """
    hostname = request.hostname
    alone = list(numbers) == [1]
    return [
        {
            "id": uuid7(),
            "name": f"{request.name}-{number}",
            "request_id": request.id,
            "tenant_id": owner,
            "desired": VmDesired.RUNNING.value,
            "observed": VmObserved.ABSENT.value,
            "labels": dict(request.labels),
            "spot": request.spot,
            "borrowed": borrowed,
            "hostname": (
                hostname if hostname is None or alone else numbered_hostname(hostname, number)
            ),
            "created_at": now,
        }
        for number in numbers
    ]


def creation_event(made: Request, actor: str) -> dict[str, Any]:
    """Return the event row that a request was created."""
    return event_row(
        made.created_at,
        actor,
        "request_created",
        "request",
        made.id,
        tenant=made.tenant,
        change=(None, made.state),
        data={
            "name": made.name,
            "vm_type": made.vm_type,
            "count": made.count,
            "min_count": made.min_count,
            **({} if made.max_count is None else {"max_count": made.max_count}),
            "image": made.image,
            **({"volumes": list(made.volumes)} if made.volumes else {}),
            **(
                {"new_volumes": [asdict(each) for each in made.new_volumes]}
                if made.new_volumes
                else {}
            ),
        },
    )


def check_hosts(connection: Connection, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the hosts that a request names, in order, or raise `NotFoundError`."""
    if names is None:
        return None
    wanted = sorted({lookup_name("host", name) for name in names})
    if not 1 <= len(wanted) <= MAX_HOSTS:
        raise InvalidError("hosts", len(wanted), f"1 to {MAX_HOSTS} names, or none for all hosts")
    known = set(
        connection.scalars(
            select(hosts.c.name).where(
                hosts.c.name.in_(wanted), hosts.c.admin != HostAdmin.RETIRED.value
            )
        )
    )
    for name in wanted:
        if name not in known:
            raise NotFoundError("host", name)
    return tuple(wanted)
