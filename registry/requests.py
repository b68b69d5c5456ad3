"""Requests: a tenant asks for so many VMs of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from registry.addresses import give_macs
from registry.clock import db_now
from registry.cluster import capacity_view
from registry.deletion import delete_vms
from registry.engine import Database, retried
from registry.errors import ConflictError, DuplicateError, InvalidError, NotFoundError
from registry.events import event_row, record
from registry.guest_access import NOTHING, check_access, keep_access, told_access
from registry.idempotency import bind_request, request_of_key
from registry.ids import uuid7
from registry.images import image_for
from registry.lifecycle import (
    FINISHED,
    HostAdmin,
    RequestState,
    VmDesired,
    VmDesiredEvent,
    VmObserved,
)
from registry.names import check_int, check_labels, check_name, look_up
from registry.networks import networks_of, put_on_network
from registry.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.power import SHUTDOWN_TIMEOUT_S, ask_all
from registry.progress import tally
from registry.quotas import check_quota
from registry.records import CapacityView, IdempotencyKey, OverQuota, Request, Rules
from registry.rules import check_rules, join_groups, memberships, rules_of
from registry.schema import hosts, images, request_images, requests, tenants, vm_types, vms
from registry.tenant_tree import asker_id
from registry.vm_types import get_vm_type
from registry.waiting import from_json

MAX_COUNT = 10_000
MAX_HOSTS = 1_000

_SELECT = (
    select(
        requests,
        tenants.c.name.label("tenant"),
        vm_types.c.name.label("vm_type"),
        images.c.name.label("image"),
        images.c.revision.label("image_revision"),
    )
    .select_from(requests)
    .join(tenants, tenants.c.id == requests.c.tenant_id)
    .join(vm_types, vm_types.c.id == requests.c.vm_type_id)
    .outerjoin(request_images, request_images.c.request_id == requests.c.id)
    .outerjoin(images, images.c.id == request_images.c.image_id)
)


class Requests:
    """Makes, reads and deletes requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def create(
        self,
        *,
        tenant: str,
        vm_type: str,
        count: int,
        min_count: int = 1,
        name: str | None = None,
        requires: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
        image: str | None = None,
        network: str | None = None,
        ssh_keys: Sequence[str] = (),
        user_data: bytes | None = None,
        rules: Rules | None = None,
        actor: str,
        idempotency: IdempotencyKey | None = None,
        over_quota: OverQuota = "refuse",
    ) -> Request:
        """Insert a request and its VMs in one transaction.

        The first round that places it places at least ``min_count`` VMs at once.
        With a key that made a request before, that request is returned and
        nothing is made: also when the first caller died before it could store
        its answer. ``over_quota`` counts where no tenant or group says otherwise.
        """
        check_int("count", count, 1, MAX_COUNT)
        check_int("min_count", min_count, 1, count)
        labels = check_labels("requires", requires)
        access = check_access(ssh_keys, user_data)
        rules = check_rules(rules or Rules(), count)
        key = uuid7()
        name = check_name("name", name if name is not None else f"req-{key.hex[-10:]}")
        with self._database.write() as connection:
            if idempotency is not None:
                before = request_of_key(connection, idempotency)
                if before is not None:
                    return _get(connection, before)
            now = db_now(connection)
            owner = asker_id(connection, tenant)
            wanted = get_vm_type(connection, vm_type)
            check_quota(connection, owner, wanted.id, count, over_quota=over_quota)
            rests_on = image_for(connection, image, wanted) if image is not None else None
            try:
                connection.execute(
                    insert(requests).values(
                        id=key,
                        name=name,
                        tenant_id=owner,
                        vm_type_id=wanted.id,
                        count=count,
                        min_count=min_count,
                        requires=list(labels),
                        hosts=_check_hosts(connection, hosts),
                        forbids=list(rules.forbids),
                        prefers=list(rules.prefers),
                        zone=rules.zone,
                        spread=rules.spread,
                        state=RequestState.PENDING.value,
                        created_at=now,
                        updated_at=now,
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("request", "name", name) from error
            if rests_on is not None:
                connection.execute(
                    insert(request_images).values(request_id=key, image_id=rests_on.id)
                )
            keep_access(connection, key, access)
            vm_ids = [uuid7() for _ in range(count)]
            join_groups(connection, owner, key, rules, now)
            connection.execute(
                insert(vms),
                [
                    {
                        "id": vm_id,
                        "name": f"{name}-{number}",
                        "request_id": key,
                        "tenant_id": owner,
                        "desired": VmDesired.RUNNING.value,
                        "observed": VmObserved.ABSENT.value,
                        "created_at": now,
                    }
                    for number, vm_id in enumerate(vm_ids, start=1)
                ],
            )
            joined = put_on_network(connection, key, network) if network is not None else None
            give_macs(connection, vm_ids, joined)
            if idempotency is not None:
                bind_request(connection, idempotency, key)
            history = event_row(
                now,
                actor,
                "request_created",
                "request",
                key,
                tenant=tenant,
                change=(None, RequestState.PENDING),
                data={
                    "name": name,
                    "vm_type": vm_type,
                    "count": count,
                    "min_count": min_count,
                    "image": rests_on.reference if rests_on is not None else None,
                },
            )
            record(connection, [history])
            return _get(connection, key)

    def get(self, id: UUID) -> Request:  # noqa: A002 - the contract's name
        """Return one, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get(connection, id)

    def find(self, tenant: str, name: str) -> Request:
        """Return the live request of that name, else the newest that had it."""
        query = (
            _SELECT.where(
                tenants.c.name == look_up("tenant", tenant),
                requests.c.name == look_up("request", name),
            )
            .order_by(
                requests.c.state.in_([state.value for state in FINISHED]), requests.c.id.desc()
            )
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise NotFoundError("request", name)
            return _with_tallies(connection, [row])[0]

    def list(
        self,
        *,
        tenant: str | None = None,
        state: RequestState | None = None,
        name: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Request]:
        """Return a page, newest last."""
        query = _SELECT.order_by(requests.c.id).limit(check_limit(limit) + 1)
        for column, value in (
            (tenants.c.name, tenant),
            (requests.c.state, state.value if state is not None else None),
            (requests.c.name, name),
        ):
            if value is not None:
                query = query.where(column == value)
        if cursor is not None:
            query = query.where(requests.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = _with_tallies(connection, connection.execute(query).all())
        return page_of(found, limit, lambda request: (request.id.hex,))

    def capacity_view(self, vm_type: str, *, tenant: str | None, rules: Rules) -> CapacityView:
        """Return the hosts as they are, and where VMs of the groups in the rules of a tenant are.

        Raises
        ------
        NotFoundError
            If there is no such VM type.
        """
        rules = check_rules(rules, 1)
        with self._database.read() as connection:
            wanted = get_vm_type(connection, vm_type)
            return capacity_view(connection, wanted.resources, tenant, rules)

    @retried
    def delete(self, id: UUID, *, actor: str) -> Request:  # noqa: A002
        """Delete every VM of a request; twice is no error.

        Its ``count`` stays, as the record of what was asked.
        """
        with self._database.write() as connection:
            _get(connection, id)
            delete_vms(connection, vms.c.request_id == id, now=db_now(connection), actor=actor)
            return _get(connection, id)

    @retried
    def switch(
        self,
        id: UUID,  # noqa: A002
        event: VmDesiredEvent,
        *,
        timeout_s: int = SHUTDOWN_TIMEOUT_S,
        actor: str,
    ) -> Request:
        """Stop, start or reboot every VM of a request of which it can be asked; see `Vms.switch`.

        VMs that were not placed yet and are stopped wait for no place until they are started.
        """
        with self._database.write() as connection:
            request = _get(connection, id)
            if request.state in FINISHED:
                raise ConflictError(f"request {request.name} is {request.state}")
            now = db_now(connection)
            ask_all(connection, id, event, timeout_s=timeout_s, now=now, actor=actor)
            return _get(connection, id)


def _check_hosts(connection: Connection, names: Sequence[str] | None) -> list[str] | None:
    if names is None:
        return None
    wanted = sorted({look_up("host", name) for name in names})
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
    return wanted


def _get(connection: Connection, key: UUID) -> Request:
    row = connection.execute(_SELECT.where(requests.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("request", key)
    return _with_tallies(connection, [row])[0]


def _with_tallies(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Request, ...]:
    tallies = {
        found.request_id: found for found in connection.execute(tally(row.id for row in rows))
    }
    access = told_access(connection, tallies)
    on_network = networks_of(connection, tallies)
    groups = memberships(connection, (row.id for row in rows))
    return tuple(
        Request(
            id=row.id,
            name=row.name,
            tenant=row.tenant,
            vm_type=row.vm_type,
            count=row._mapping["count"],  # a row is a tuple: it has a count() of its own
            min_count=row.min_count,
            requires=tuple(row.requires),
            hosts=tuple(row.hosts) if row.hosts is not None else None,
            rules=rules_of(row, groups.get(row.id, {})),
            state=RequestState(row.state),
            waiting=from_json(row.waiting),
            vms_placed=tallies[row.id].held,
            vms_running=tallies[row.id].running,
            created_at=row.created_at,
            updated_at=row.updated_at,
            image=None if row.image is None else f"{row.image}:{row.image_revision}",
            network=on_network.get(row.id),
            ssh_keys=access.get(row.id, NOTHING)[0],
            user_data=access.get(row.id, NOTHING)[1],
        )
        for row in rows
    )
