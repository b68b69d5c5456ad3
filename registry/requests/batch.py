"""Acceptance of requests, one or several in a transaction, in the order of their calls.

Calls that arrive at the same time share the costs of a transaction and of its statements. Each
call is checked as it would be alone, after those before it. A call that cannot be accepted gets
its error and leaves nothing behind.

Statements are few, as the tenants' locks are held until the end: the names of a new request are not
read back, and the answer is composed of the rows that were written.

The locks are keys, tenants, and the groups of tenants above them. All locks of a kind are taken in
one statement, in one order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, func, select
from sqlalchemy.exc import IntegrityError

from registry.audit.events import record_events
from registry.catalogue.vm_types import get_vm_type, vm_type_id
from registry.db.audit_context import UncommittedAuditRow, insert_audit_rows
from registry.db.bulk import insert_rows
from registry.db.clock import db_now
from registry.db.dialect import has_one_writer
from registry.db.idempotency_keys import claim_keys, release_keys, store_records
from registry.db.names import is_name
from registry.db.schema import request_access, request_images, requests, tenants, vm_types, vms
from registry.errors import DuplicateError, RegistryError
from registry.images.images import lock_request_image
from registry.networks.addresses import create_interfaces
from registry.networks.networks import join_network
from registry.records.images import Image
from registry.records.requests import Request
from registry.requests.guest_access import NO_ACCESS, access_row
from registry.requests.request_spec import (
    CreateRequestCommand,
    check_hosts,
    creation_event,
    new_request,
    numbered_names,
    request_row,
    vm_rows,
)
from registry.requests.rules import NO_RULES, join_groups
from registry.requests.vm_names import VmNames
from registry.tenancy.quota_use import RemainingQuota
from registry.tenancy.reservation_use import ReservationDraws
from registry.tenancy.tree import lock_requesting_tenant
from registry.volumes.of_requests import bind_volumes, check_new_volumes, create_new_volumes

#: The most VMs of a call in a batch; a larger call is accepted alone.
MAX_BATCH_VMS: Final = 32
#: One blocked call blocks the batch: time out early, then retry each call alone.
LOCK_WAIT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class CallBatch:
    """The results of a batch's calls, in their order, and their audit rows.

    A result is a request, an error, or None for a call that must be accepted alone.
    """

    made: Sequence[Request | RegistryError | None]
    audit_intents: Sequence[UncommittedAuditRow]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A checked request that is not yet written."""

    command: CreateRequestCommand
    made: Request
    owner: UUID
    type_id: UUID
    image: Image | None


def can_batch(command: CreateRequestCommand) -> bool:
    """Return whether a call that creates a request needs no locks beyond those of a batch."""
    wanted = command.spec
    return (
        wanted.count <= MAX_BATCH_VMS
        and wanted.hosts is None
        and wanted.network is None
        and wanted.rules.affinity is None
        and wanted.rules.anti_affinity is None
        and not wanted.volumes
        and not wanted.new_volumes
    )


def create_batch(connection: Connection, commands: Sequence[CreateRequestCommand]) -> CallBatch:
    """Create the requests of several calls in one transaction, as far as one batch can.

    The result is None for calls that need other locks, and for calls whose keys were used before;
    these must be accepted alone.
    """
    now = _begin_transaction(connection)
    keys = [each.idempotency for each in commands if each.idempotency is not None]
    claimed = claim_keys(connection, keys, now)
    unused = set(claimed)
    wanted: dict[int, CreateRequestCommand] = {}
    for at, each in enumerate(commands):
        if each.idempotency is not None:
            if each.idempotency not in unused:  # answered before, or by one before it here
                continue
            unused.remove(each.idempotency)
        if can_batch(each):
            wanted[at] = each
    made, intents = create_requests(connection, list(wanted.values()), now)
    of_places = dict(zip(wanted, made, strict=True))
    kept = {wanted[at].idempotency for at, made in of_places.items() if isinstance(made, Request)}
    release_keys(connection, [key for key in claimed if key not in kept])
    return CallBatch([of_places.get(at) for at in range(len(commands))], intents)


def create_requests(
    connection: Connection, commands: Sequence[CreateRequestCommand], now: datetime
) -> tuple[Sequence[Request | RegistryError], Sequence[UncommittedAuditRow]]:
    """Create the requests of the valid calls; this transaction has claimed their keys."""
    judged = _check_calls(connection, commands, now)
    intents = _write_drafts(connection, [each for each in judged if isinstance(each, _Draft)], now)
    return [each.made if isinstance(each, _Draft) else each for each in judged], intents


def _begin_transaction(connection: Connection) -> datetime:
    """Set the lock timeout of a batch's transaction and return the time."""
    if has_one_writer(connection):
        return db_now(connection)
    found: datetime = connection.execute(_BEGIN, {"wait": f"{LOCK_WAIT_MS}ms"}).one()[0]
    return found.astimezone(UTC)


def _check_calls(
    connection: Connection, commands: Sequence[CreateRequestCommand], now: datetime
) -> Sequence[_Draft | RegistryError]:
    """Return a draft request or an error for each call of a batch, in order."""
    owners = _ids_by_name(connection, _ASKERS, {each.spec.tenant for each in commands})
    types = _ids_by_name(connection, _TYPES, {each.spec.vm_type for each in commands})
    allowance = RemainingQuota(connection, set(owners.values()))
    named = [each.spec for each in commands if each.spec.name is not None]
    names = None  # a request without a name gets an unused one
    if named:
        given = {name for each in named for name in _vm_names(each.name or "", each.count)}
        names = VmNames(connection, set(owners.values()), sorted(given))
    images = _CallImages(connection)
    any_draws = any(each.spec.reservation is not None for each in commands)
    draws = ReservationDraws(connection, now) if any_draws else None

    def check_call(command: CreateRequestCommand) -> _Draft:
        spec = command.spec
        # Look up missing names again so that the error says why.
        owner = owners.get(spec.tenant) or lock_requesting_tenant(connection, spec.tenant)
        type_id = types.get(spec.vm_type) or vm_type_id(connection, spec.vm_type)
        if draws is None or spec.reservation is None:
            allowance.check(owner, type_id, spec.count, over_quota=command.over_quota)
        else:  # its quota was looked at when it was accepted, and counts it since it began
            draws.draw(spec.reservation, owner, spec.vm_type, spec.count)
        image = images.image_of(command)
        made = new_request(spec, image, check_hosts(connection, spec.hosts), now=now)
        if names is not None:
            of_vms = numbered_names(made.name, 1, made.count)
            if spec.name is not None:
                names.check(owner, of_vms, made.name)
            names.reserve(owner, of_vms, made.name)
        if spec.reservation is None:
            allowance.deduct(owner, type_id, spec.count)
        if spec.new_volumes:  # volumes never wait for room in a quota
            allowance.check_amounts(owner, check_new_volumes(connection, owner, made))
        return _Draft(command, made, owner, type_id, image)

    found: list[_Draft | RegistryError] = []
    for each in commands:
        try:
            found.append(check_call(each))
        except RegistryError as error:
            found.append(error)
    return found


def _ids_by_name(
    connection: Connection, query: Select[UUID, str], names: Iterable[str]
) -> Mapping[str, UUID]:
    """Return the ids of tenants or VM types by name; of a repeated name the last one."""
    some = sorted(filter(is_name, names))
    if not some:
        return {}
    return {name: key for key, name in connection.execute(query, {"names": some})}


def _write_drafts(
    connection: Connection, drafts: Sequence[_Draft], now: datetime
) -> Sequence[UncommittedAuditRow]:
    """Insert draft requests with their VMs, keys, events and audit rows."""
    if not drafts:
        return ()
    rows = [request_row(draft.made, draft.owner, draft.type_id) for draft in drafts]
    try:
        insert_rows(connection, requests, rows)
    except IntegrityError as error:  # who went around the lock of the tenant
        raise DuplicateError("request", "name", drafts[0].made.name) from error
    insert_rows(
        connection,
        request_images,
        [
            {"request_id": draft.made.id, "image_id": draft.image.id}
            for draft in drafts
            if draft.image is not None
        ],
    )
    insert_rows(
        connection,
        request_access,
        [
            access_row(draft.made.id, draft.command.spec.access)
            for draft in drafts
            if draft.command.spec.access != NO_ACCESS
        ],
    )
    on_networks = _join_groups_and_networks(connection, drafts, now)
    of_vms = [
        row
        for draft in drafts
        for row in vm_rows(draft.made, draft.owner, range(1, draft.made.count + 1), now=now)
    ]
    insert_rows(connection, vms, of_vms)
    vms_by_network: defaultdict[UUID | None, list[UUID]] = defaultdict(list)
    for row in of_vms:
        vms_by_network[on_networks.get(row["request_id"])].append(row["id"])
    for network_id, keys in vms_by_network.items():
        create_interfaces(connection, keys, network_id)
    for draft in drafts:
        if draft.made.volumes or draft.made.new_volumes:
            _write_volumes(connection, draft, of_vms, now)
    record_events(connection, [creation_event(draft.made, draft.command.actor) for draft in drafts])
    of_keys = [(draft.command.idempotency, draft.made) for draft in drafts]
    store_records(connection, [(key, made) for key, made in of_keys if key is not None])
    return insert_audit_rows(
        connection,
        [
            (draft.command.call, str(draft.made.id), _stored_status(draft.command))
            for draft in drafts
            if draft.command.call is not None
        ],
        now,
    )


def _write_volumes(
    connection: Connection, draft: _Draft, of_vms: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Create the new volumes of a draft request, and bind those that it names to its VM."""
    made, owner, actor = draft.made, draft.owner, draft.command.actor
    keys = [row["id"] for row in of_vms if row["request_id"] == made.id]
    create_new_volumes(connection, made, owner, keys, now=now, actor=actor)
    if made.volumes:
        bind_volumes(connection, made, owner, keys[0], now=now, actor=actor)


def _join_groups_and_networks(
    connection: Connection, drafts: Iterable[_Draft], now: datetime
) -> Mapping[UUID, UUID]:
    """Add draft requests to their VM groups, and return the networks of those with one."""
    networks: dict[UUID, UUID] = {}
    for draft in drafts:
        spec, made, owner = draft.command.spec, draft.made, draft.owner
        if spec.rules != NO_RULES:
            join_groups(connection, owner, made.id, spec.rules, now)
        if spec.network is not None:
            networks[made.id] = join_network(connection, made.id, spec.network, owner)
    return networks


def _stored_status(command: CreateRequestCommand) -> int | None:
    """Return the HTTP status to store with a call's idempotency key; None without a key."""
    return command.idempotency.status if command.idempotency is not None else None


def _vm_names(name: str, count: int) -> Sequence[str]:
    """Return the names that a request and its VMs take."""
    return [name, *numbered_names(name, 1, count)]


class _CallImages:
    """The images of a batch's calls, each locked against removal once it was found."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._found: dict[tuple[str, str], Image] = {}

    def image_of(self, command: CreateRequestCommand) -> Image | None:
        """Return the image of a call, or raise the error that the call alone would get."""
        reference = command.spec.image
        if reference is None:
            return None
        wanted = reference, command.spec.vm_type
        if wanted not in self._found:
            vm_type = get_vm_type(self._connection, command.spec.vm_type)
            self._found[wanted] = lock_request_image(self._connection, reference, vm_type)
        return self._found[wanted]


_BEGIN: Final = select(
    func.clock_timestamp(), func.set_config("lock_timeout", bindparam("wait"), True)
)
_ASKERS: Final = (
    select(tenants.c.id, tenants.c.name)
    .where(
        tenants.c.name.in_(bindparam("names", expanding=True)),
        tenants.c.removed_at.is_(None),
        tenants.c.is_group.is_(False),
    )
    .order_by(tenants.c.id)
    .with_for_update(key_share=True)
)
_TYPES: Final = (
    select(vm_types.c.id, vm_types.c.name)
    .where(vm_types.c.name.in_(bindparam("names", expanding=True)))
    .order_by(vm_types.c.revision)
)
