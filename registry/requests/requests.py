"""Requests of tenants for VMs of one type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, false, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from registry.db.audit_context import UncommittedAuditRow, mark_audit_rows_committed
from registry.db.bulk import is_any_of
from registry.db.clock import db_now, earlier_time
from registry.db.engine import (
    Database,
    LockTimeoutError,
    TransactionRolledBackError,
    retry_on_rollback,
)
from registry.db.idempotency_keys import claim_key, store_result
from registry.db.names import lookup_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, name_contains, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import images, request_images, requests, tenants, vm_types, vms
from registry.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    RegistryError,
    RegistryUnavailableError,
)
from registry.ledger.deletion import delete_vms
from registry.ledger.placeable import is_borrowed_without_place, is_waiting_vm
from registry.ledger.power import SHUTDOWN_TIMEOUT_S
from registry.ledger.request_progress import vm_counts_query
from registry.lifecycle import FINISHED, OPEN_REQUESTS, RequestState, VmDesiredEvent
from registry.networks.networks import check_still_offered, read_network_names
from registry.records.journal import IdempotencyKey
from registry.records.requests import NewVolume, Request
from registry.records.tenancy import OverQuota
from registry.requests.batch import create_batch, create_requests
from registry.requests.expiry import AT_ONCE, expire_vms, find_expired, set_expiry
from registry.requests.guest_access import NOTHING, read_access
from registry.requests.own_labels import changed_labels, label_conditions
from registry.requests.power import request_power_changes
from registry.requests.request_spec import (
    CreateRequestCommand,
    RequestSpec,
    check_elastic_request,
    check_spec,
)
from registry.requests.resize import resize
from registry.requests.rules import memberships, rules_of
from registry.requests.spot_preemptions import (
    apply_preemptions,
    borrowed_without_place,
    delete_expired_room,
    due_preemptions,
    has_expired_room,
)
from registry.requests.waiting_status import waiting_status_from_json
from registry.tenancy.quota_use import check_quota
from registry.tenancy.reservation_use import ReservationDraws
from registry.tenancy.tree import key_query, lock_requesting_tenant

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
#: States of requests that may have VMs to place.


class Requests:
    """Creates, reads, changes and deletes requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        *,
        actor: str,
        idempotency: IdempotencyKey | None = None,
        over_quota: OverQuota = "refuse",
        **values: Any,
    ) -> Request:
        """Accept a request given by the fields of a `RequestSpec`; see `accept`."""
        return self.accept(
            CreateRequestCommand(
                spec=check_spec(RequestSpec(**values)),
                actor=actor,
                over_quota=over_quota,
                idempotency=idempotency,
            )
        )

    @retry_on_rollback
    def accept(self, command: CreateRequestCommand) -> Request:
        """Create a request and its VMs in one transaction, with its idempotency key.

        The first round that places it places at least ``min_count`` VMs at once.

        Raises
        ------
        AnsweredBeforeError
            If an earlier call with the key did its work; it has the stored record.
        """
        with self._database.write() as connection:
            accepted, intents = _accept_alone(connection, command)
        mark_audit_rows_committed(intents)
        return accepted

    def accept_batch(
        self, commands: Sequence[CreateRequestCommand]
    ) -> Sequence[Request | RegistryError | None]:
        """Create the requests of several calls in one transaction; return each request or error.

        None stands for a call that must be accepted alone. Only an unreachable database fails all
        calls.
        """
        try:
            return self._accept_in_batch(commands)
        except (TransactionRolledBackError, LockTimeoutError):
            return [None] * len(commands)
        except RegistryUnavailableError:
            raise
        except (RegistryError, IntegrityError):
            return [None] * len(commands)

    @retry_on_rollback
    def _accept_in_batch(
        self, commands: Sequence[CreateRequestCommand]
    ) -> Sequence[Request | RegistryError | None]:
        """Create the requests of a batch of calls in one transaction; None for calls left out."""
        with self._database.write() as connection:
            group = create_batch(connection, commands)
        mark_audit_rows_committed(group.audit_intents)
        return group.made

    def get(self, id: UUID) -> Request:  # noqa: A002 - the contract's name
        """Return a request, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_request(connection, id)

    def tenant_of(self, id: UUID) -> str | None:  # noqa: A002
        """Return a request's tenant or None, in the same time for known and unknown ids."""
        query = select(tenants.c.name).join(requests, requests.c.tenant_id == tenants.c.id)
        with self._database.read() as connection:
            return connection.execute(query.where(requests.c.id == id)).scalar_one_or_none()

    def find(self, tenant: str, name: str) -> Request:
        """Return the open request with a name, else the newest that had it."""
        query = (
            _SELECT.where(
                tenants.c.name == lookup_name("tenant", tenant),
                requests.c.name == lookup_name("request", name),
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
            return _requests_of_rows(connection, [row])[0]

    def list(
        self,
        *,
        tenant: str | None = None,
        state: RequestState | None = None,
        name: str | None = None,
        search: str | None = None,
        labels: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Request]:
        """Return a page of requests, newest last; ``labels`` are ``key=value``, all must match.

        ``search`` is a part of the name.
        """
        query = _SELECT.order_by(requests.c.id).limit(check_limit(limit) + 1)
        if tenant is not None:  # by its key, in the order of an index
            query = query.where(requests.c.tenant_id == key_query(tenant))
        for column, value in (
            (requests.c.state, state.value if state is not None else None),
            (requests.c.name, name),
        ):
            if value is not None:
                query = query.where(column == value)
        query = query.where(
            *label_conditions(requests, labels), *name_contains(requests.c.name, search)
        )
        if cursor is not None:
            query = query.where(requests.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = _requests_of_rows(connection, connection.execute(query).all())
        return page_of(found, limit, lambda request: (request.id.hex,))

    def count_preceding(self, request: Request, tenant: str | None) -> int:
        """Return how many requests with VMs to place precede a request, of a tenant or of all.

        Requests of its tenant precede it by priority, then by creation. Other requests precede it
        by creation; requests for spot VMs come last.
        """
        priority, its = requests.c.priority, requests.c.tenant_id == key_query(request.tenant)
        earlier = requests.c.id < request.id
        query = select(func.count()).where(
            requests.c.state.in_(OPEN_REQUESTS),
            or_(
                ~requests.c.spot if request.spot else false(),
                and_(
                    requests.c.spot == request.spot,
                    or_(
                        and_(its, priority > request.priority),
                        and_(or_(~its, priority == request.priority), earlier),
                    ),
                ),
            ),
            select(vms.c.id).where(vms.c.request_id == requests.c.id, is_waiting_vm()).exists(),
        )
        if tenant is not None:
            query = query.where(requests.c.tenant_id == key_query(tenant))
        with self._database.read() as connection:
            return connection.scalars(query).one()

    @retry_on_rollback
    def delete(self, id: UUID, *, actor: str) -> Request:  # noqa: A002
        """Delete every VM of a request; a repeated call is no error.

        Its ``count`` stays, as the record of the requested number.
        """
        with self._database.write() as connection:
            request = _get_request(connection, id)
            if request.max_count is not None:  # no round lends it another VM before this commits
                lock_requesting_tenant(connection, request.tenant)
            delete_vms(connection, vms.c.request_id == id, now=db_now(connection), actor=actor)
            return _get_request(connection, id)

    @retry_on_rollback
    def change(
        self,
        id: UUID,  # noqa: A002
        *,
        count: int | None = None,
        max_count: int | None = None,
        remove: Collection[UUID] = (),
        labels: Mapping[str, str | None] | None = None,
        ttl_s: int | None = None,
        never_expires: bool = False,
        over_quota: OverQuota = "refuse",
        actor: str,
    ) -> Request:
        """Change the number of VMs, the labels (None removes one) or the end of a request.

        `resize.resize` chooses the VMs to delete if the number decreases. A ``max_count`` equal to
        the number of VMs ends the borrowing.
        """
        with self._database.write() as connection:
            request = _get_request(connection, id)
            owner = lock_requesting_tenant(connection, request.tenant)
            request = _get_request(connection, id)
            now = db_now(connection)
            if ttl_s is not None or never_expires:
                set_expiry(connection, request, ttl_s, now=now, actor=actor)
            if labels:
                after = changed_labels(request.labels, labels)
                connection.execute(
                    update(requests).where(requests.c.id == id).values(labels=after, updated_at=now)
                )
                request = _get_request(connection, id)
            if count is not None or max_count is not None:
                count = request.count if count is None else count
                if max_count is not None and max_count > count:
                    check_elastic_request(request)
                if count > request.count + request.vms_borrowed:
                    of_type = select(requests.c.vm_type_id).where(requests.c.id == id)
                    vm_type: UUID = connection.scalars(of_type).one()
                    more = count - request.count - request.vms_borrowed
                    if request.reservation is None:
                        check_quota(connection, owner, vm_type, more, over_quota=over_quota)
                    else:
                        draws = ReservationDraws(connection, now)
                        draws.draw(request.reservation, owner, request.vm_type, more)
                    check_still_offered(connection, id, owner)
                resize(
                    connection,
                    request,
                    owner,
                    count,
                    max_count=max_count,
                    remove=remove,
                    now=now,
                    actor=actor,
                )
            elif remove:
                raise InvalidError("remove", len(remove), "nothing without a smaller count")
            return _get_request(connection, id)

    @retry_on_rollback
    def expire(
        self, *, by: datetime | None = None, actor: str = "control", at_once: int = AT_ONCE
    ) -> tuple[UUID, ...]:
        """End requests that have expired by the database's clock and by ``by``; return them.

        At most ``at_once`` VMs end in a call, so that other calls do not wait long; later calls
        end the rest.
        """
        with self._database.read() as connection:
            found = find_expired(connection, earlier_time(db_now(connection), by), at_once)
        if not found:
            return ()
        with self._database.write() as connection:
            now = db_now(connection)
            return expire_vms(connection, found, by=earlier_time(now, by), now=now, actor=actor)

    @retry_on_rollback
    def end_spot_vms(self, *, actor: str = "control", at_once: int = AT_ONCE) -> tuple[UUID, ...]:
        """End spot and borrowed VMs whose notice has run out; return the VMs that ended.

        Borrowed VMs without a place end, too.
        """
        with self._database.read() as connection:
            now = db_now(connection)
            found = due_preemptions(connection, now, at_once)
            over = has_expired_room(connection, now)
            placeless = borrowed_without_place(connection, at_once)
        if not found and not over and not placeless:
            return ()
        with self._database.write() as connection:
            now = db_now(connection)
            if placeless:  # it had its only chance of a place when it was created
                found_again = is_any_of(connection, vms.c.id, placeless)
                which = and_(found_again, is_borrowed_without_place())
                delete_vms(connection, which, now=now, actor=actor, reason="it lost its place")
            delete_expired_room(connection, now)
            return apply_preemptions(connection, found, now=now, actor=actor)

    @retry_on_rollback
    def change_power(
        self,
        id: UUID,  # noqa: A002
        event: VmDesiredEvent,
        *,
        timeout_s: int = SHUTDOWN_TIMEOUT_S,
        actor: str,
    ) -> Request:
        """Stop, start or reboot every VM of a request whose state allows it.

        See `Vms.change_power`. A stopped VM that was never placed does not wait for a place until
        it is started.
        """
        with self._database.write() as connection:
            request = _get_request(connection, id)
            if request.state in FINISHED:
                raise ConflictError(f"request {request.name} is {request.state}")
            now = db_now(connection)
            request_power_changes(connection, id, event, timeout_s=timeout_s, now=now, actor=actor)
            return store_result(connection, _get_request(connection, id))


def _accept_alone(
    connection: Connection, command: CreateRequestCommand
) -> tuple[Request, Sequence[UncommittedAuditRow]]:
    """Create one request in its own transaction, which waits for its key and for locks."""
    key = command.idempotency
    now = claim_key(connection, key) if key is not None else db_now(connection)
    [found], intents = create_requests(connection, [command], now)
    if isinstance(found, RegistryError):
        raise found
    return found, intents


def _get_request(connection: Connection, key: UUID) -> Request:
    """Return a request, or raise `NotFoundError`."""
    row = connection.execute(_SELECT.where(requests.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("request", key)
    return _requests_of_rows(connection, [row])[0]


def _requests_of_rows(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Request, ...]:
    """Return the records of requests from their rows, with counts of VMs, access and groups."""
    of_these = is_any_of(connection, vms.c.request_id, [row.id for row in rows])
    tallies = {found.request_id: found for found in connection.execute(vm_counts_query(of_these))}
    access = read_access(connection, tallies)
    on_network = read_network_names(connection, tallies)
    groups = memberships(connection, (row.id for row in rows))
    return tuple(
        record_of(
            Request,
            row,
            rules=rules_of(row, groups.get(row.id, {})),
            reservation=row.reservation_id,
            new_volumes=tuple(NewVolume(**each) for each in row.new_volumes),
            waiting=waiting_status_from_json(row.waiting),
            vms_wanted=tallies[row.id].wanted,
            vms_placed=tallies[row.id].placed,
            vms_running=tallies[row.id].running,
            vms_unknown=tallies[row.id].unknown,
            vms_leaving=tallies[row.id].leaving,
            vms_borrowed=tallies[row.id].borrowed,
            image=None if row.image is None else f"{row.image}:{row.image_revision}",
            network=on_network.get(row.id),
            ssh_keys=access.get(row.id, NOTHING)[0],
            user_data=access.get(row.id, NOTHING)[1],
            warnings=access.get(row.id, NOTHING)[2],
        )
        for row in rows
    )
