"""SSH keys of tenants, which give access to VMs that are built for them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, delete, insert, select
from sqlalchemy.exc import IntegrityError

from registry.audit.events import record_event
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.names import check_new_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import ssh_keys, tenants
from registry.errors import DuplicateError, InvalidError, NotFoundError
from registry.records.tenancy import SshKey
from registry.tenancy.public_keys import MAX_KEYS, check_public_key, fingerprint
from registry.tenancy.tree import tenant_id

_SELECT = select(ssh_keys, tenants.c.name.label("tenant")).join(
    tenants, tenants.c.id == ssh_keys.c.tenant_id
)


class SshKeys(Repository):
    """Adds, lists and removes the SSH keys of tenants."""

    @retry_on_rollback
    def add(self, name: str, public_key: str, *, tenant: str, actor: str) -> SshKey:
        """Add an SSH key of a tenant; VMs that are built from now on accept it."""
        check_new_name("name", name)
        checked = check_public_key("public_key", public_key)
        key = uuid7()
        with self._database.write() as connection:
            owner = tenant_id(connection, tenant)
            query = select(ssh_keys.c.name, ssh_keys.c.public_key)
            held = connection.execute(query.where(ssh_keys.c.tenant_id == owner)).all()
            for each in held:
                if each.name != name and fingerprint(each.public_key) == (
                    its := fingerprint(checked)
                ):
                    raise DuplicateError("SSH key", "public_key", its, of=each.name)
            if len(held) >= MAX_KEYS:
                raise InvalidError("public_key", f"{len(held)} keys already", f"at most {MAX_KEYS}")
            now = db_now(connection)
            try:
                connection.execute(
                    insert(ssh_keys).values(
                        id=key, tenant_id=owner, name=name, public_key=checked, created_at=now
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("SSH key", "name", name) from error
            _record_key_event(
                connection, "ssh_key_added", (added := _get_ssh_key(connection, key)), actor
            )
            return store_result(connection, added)

    def list(
        self, *, tenant: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[SshKey]:
        """Return a page of tenants' SSH keys, oldest first."""
        query = _SELECT.order_by(ssh_keys.c.id).limit(check_limit(limit) + 1)
        if tenant is not None:
            query = query.where(tenants.c.name == tenant)
        if cursor is not None:
            query = query.where(ssh_keys.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = [_to_ssh_key(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda key: (key.id.hex,))

    def get(self, id: UUID) -> SshKey:  # noqa: A002 - the contract's name
        """Return an SSH key, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_ssh_key(connection, id)

    @retry_on_rollback
    def remove(self, id: UUID, *, actor: str) -> SshKey:  # noqa: A002
        """Remove an SSH key of a tenant; VMs that were built with it keep it."""
        with self._database.write() as connection:
            gone = _get_ssh_key(connection, id)
            connection.execute(delete(ssh_keys).where(ssh_keys.c.id == id))
            _record_key_event(connection, "ssh_key_removed", gone, actor)
            return gone


def _record_key_event(connection: Connection, kind: str, key: SshKey, actor: str) -> None:
    """Record that a tenant's SSH key was added or removed."""
    data = {"name": key.name, "fingerprint": key.fingerprint}
    now = db_now(connection)
    record_event(connection, now, actor, kind, "ssh_key", key.id, tenant=key.tenant, data=data)


def _get_ssh_key(connection: Connection, key: UUID) -> SshKey:
    """Return an SSH key, or raise `NotFoundError`."""
    row = connection.execute(_SELECT.where(ssh_keys.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("SSH key", key)
    return _to_ssh_key(row)


def _to_ssh_key(row: Row[Any]) -> SshKey:
    """Return the record of an SSH key from its row, with its fingerprint."""
    return record_of(SshKey, row, fingerprint=fingerprint(row.public_key))
