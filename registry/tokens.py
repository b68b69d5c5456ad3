"""Tokens of the API: 256 random bits, stored as SHA-256 (a slow hash would only cost requests)."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any
from uuid import UUID

from sqlalchemy import Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import DuplicateError, InvalidError, NotFoundError
from registry.events import event_row, record
from registry.ids import uuid7
from registry.names import check_name
from registry.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.records import Role, Token
from registry.schema import tenants, tokens
from registry.tenant_tree import asker_id

_SELECT = select(tokens, tenants.c.name.label("tenant")).outerjoin(
    tenants, tokens.c.tenant_id == tenants.c.id
)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    """Makes, checks and revokes tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def create(self, role: Role, tenant: str | None, name: str, *, actor: str) -> tuple[Token, str]:
        """Make a token; its secret is returned once and stored nowhere."""
        check_name("name", name)
        if role not in ("operator", "tenant"):
            raise InvalidError("role", role, "operator or tenant")
        if (role == "tenant") != (tenant is not None):
            allowed = "a tenant for role tenant, none for role operator"
            raise InvalidError("tenant", tenant, allowed)
        secret = f"fuga_{secrets.token_urlsafe(32)}"
        key = uuid7()
        with self._database.write() as connection:
            now = db_now(connection)
            owner = asker_id(connection, tenant) if tenant is not None else None
            try:
                connection.execute(
                    insert(tokens).values(
                        id=key,
                        name=name,
                        role=role,
                        tenant_id=owner,
                        digest=_digest(secret),
                        created_at=now,
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("token", "name", name) from error
            data = {"name": name, "role": role}
            record(
                connection,
                [event_row(now, actor, "token_created", "token", key, tenant=tenant, data=data)],
            )
            row = connection.execute(_SELECT.where(tokens.c.id == key)).one()
            return _to_token(row), secret

    def authenticate(self, secret: str) -> Token | None:
        """Return whose secret it is; None if it is nobody's, or was revoked."""
        query = _SELECT.where(tokens.c.digest == _digest(secret), tokens.c.revoked_at.is_(None))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return _to_token(row) if row is not None else None

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Token]:
        """Return a page, oldest first, revoked ones included."""
        query = _SELECT.order_by(tokens.c.id).limit(check_limit(limit) + 1)
        if cursor is not None:
            query = query.where(tokens.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = [_to_token(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda token: (token.id.hex,))

    @retried
    def revoke(self, id: UUID, *, actor: str) -> Token:  # noqa: A002 - the contract's name
        """End a token; ending it twice is no error."""
        with self._database.write() as connection:
            row = connection.execute(_SELECT.where(tokens.c.id == id)).one_or_none()
            if row is None:
                raise NotFoundError("token", id)
            if row.revoked_at is None:
                now = db_now(connection)
                connection.execute(update(tokens).where(tokens.c.id == id).values(revoked_at=now))
                data = {"name": row.name, "role": row.role}
                record(
                    connection,
                    [event_row(now, actor, "token_revoked", "token", id, data=data)],
                )
            return _to_token(connection.execute(_SELECT.where(tokens.c.id == id)).one())


def _to_token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        name=row.name,
        role=row.role,
        tenant=row.tenant,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )
