"""Tokens of the API: 256 random bits, stored as SHA-256 (a slow hash would only cost requests)."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from registry.audit.events import record_event
from registry.db.clock import UtcNow, db_now
from registry.db.engine import Database, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.names import check_new_name, expires_at
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import tenants, tokens
from registry.errors import DuplicateError, InvalidError, NotFoundError, RegistryUnavailableError
from registry.records.tenancy import Role, SaltedToken, Token
from registry.tenancy.derived_secrets import OF_TOKENS, Derivation
from registry.tenancy.tree import lock_requesting_tenant

#: The accuracy of a token's last use: each recorded use is a write.
USE_NOTED_EVERY: Final = timedelta(hours=1)

#: The most operators' tokens listed; the list is for a person.
_MAX_LISTED: Final = 1000

_SELECT = select(tokens, tenants.c.name.label("tenant")).outerjoin(
    tenants, tokens.c.tenant_id == tenants.c.id
)
_LIVE = _SELECT.where(
    tokens.c.revoked_at.is_(None),
    or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > UtcNow()),
)
_ONE_LIVE = _LIVE.where(tokens.c.digest == bindparam("digest"))
_ALL_LIVE = _LIVE.where(tokens.c.digest.in_(bindparam("digests", expanding=True)))


#: Tokens whose last recorded use a process remembers.
_MAX_REMEMBERED: Final = 10_000


def new_secret() -> str:
    """Return a new secret for an API token: 256 random bits, with the prefix of tokens."""
    return f"{OF_TOKENS}{secrets.token_urlsafe(32)}"


def digest_of(secret: str) -> str:
    """Return the digest of a token's secret or login code that is stored in its place."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    """Creates, authenticates, lists and revokes API tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._use_noted: dict[UUID, float] = {}  #: by this process, on its monotonic clock

    @retry_on_rollback
    def create(
        self,
        role: Role,
        tenant: str | None,
        name: str,
        *,
        actor: str,
        read_only: bool = False,
        ttl_s: int | None = None,
        derivation: Derivation | None = None,
    ) -> tuple[Token, str]:
        """Create an API token; its secret is returned once and is not stored.

        With a ``derivation`` its creator can derive the secret again.
        """
        check_new_name("name", name)
        if role not in ("operator", "tenant"):
            raise InvalidError("role", role, "operator or tenant")
        if (role == "tenant") != (tenant is not None):
            allowed = "a tenant for role tenant, none for role operator"
            raise InvalidError("tenant", tenant, allowed)
        secret = new_secret() if derivation is None else derivation.token()
        with self._database.write() as connection:
            now = db_now(connection)
            owner = lock_requesting_tenant(connection, tenant) if tenant is not None else None
            ends = expires_at(ttl_s, now)
            _revoke_expired_namesake(connection, name, now)
            try:
                token = insert_token(
                    connection,
                    now,
                    secret,
                    name=name,
                    role=role,
                    tenant_id=owner,
                    read_only=read_only,
                    expires_at=ends,
                )
            except IntegrityError as error:
                raise DuplicateError("token", "name", name) from error
            data = {
                "name": name,
                "role": role,
                "read_only": read_only,
                "expires_at": None if ends is None else ends.isoformat(),
            }
            record_event(
                connection, now, actor, "token_created", "token", token.id, tenant=tenant, data=data
            )
            if derivation is not None:
                store_result(connection, SaltedToken(token=token, salt=derivation.salt))
            return token, secret

    def active_operator_tokens(self) -> tuple[Token, ...]:
        """Return the operators' API tokens in force, the earliest expiry first.

        Tokens of logins are left out: they end within hours, and their holders log in again.
        """
        query = _LIVE.where(tokens.c.role == "operator", tokens.c.login.is_(None)).order_by(
            tokens.c.expires_at.is_(None), tokens.c.expires_at, tokens.c.id
        )
        with self._database.read() as connection:
            return tuple(_to_token(row) for row in connection.execute(query.limit(_MAX_LISTED)))

    def authenticate(self, secret: str) -> Token | None:
        """Return the API token of a secret; None if it is unknown, revoked or expired."""
        with self._database.read_statement() as connection:
            row = connection.execute(_ONE_LIVE, {"digest": digest_of(secret)}).one_or_none()
        if row is None:
            return None
        self._record_use(row.id)
        return _to_token(row)

    def authenticate_all(self, secrets: Sequence[str]) -> Sequence[Token | None]:
        """Return the API tokens of several secrets with one query; see `authenticate`."""
        digests = [digest_of(secret) for secret in secrets]
        with self._database.read_statement() as connection:
            rows = connection.execute(_ALL_LIVE, {"digests": sorted(set(digests))}).all()
        for row in rows:
            self._record_use(row.id)
        found = {row.digest: _to_token(row) for row in rows}
        return [found.get(digest) for digest in digests]

    def _record_use(self, id: UUID) -> None:  # noqa: A002
        """Record when an API token was used, at intervals, as most reads must not cause a write."""
        now = time.monotonic()
        last_noted = self._use_noted.get(id)
        if last_noted is not None and now - last_noted < USE_NOTED_EVERY.total_seconds():
            return
        self._use_noted[id] = now
        if len(self._use_noted) > _MAX_REMEMBERED:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread may be here too
                del self._use_noted[next(iter(self._use_noted))]
        with suppress(RegistryUnavailableError):  # a failed note keeps no caller out
            self._write_use(id)

    @retry_on_rollback
    def _write_use(self, id: UUID) -> None:  # noqa: A002
        """Write the time at which an API token was used, unless it was written recently."""
        with self._database.write() as connection:
            at = db_now(connection)
            known = tokens.c.last_used_at
            stale = or_(known.is_(None), known < at - USE_NOTED_EVERY)
            connection.execute(
                update(tokens).where(tokens.c.id == id, stale).values(last_used_at=at)
            )

    def get(self, id: UUID) -> Token:  # noqa: A002 - the contract's name
        """Return an API token by its id, or raise `NotFoundError`."""
        with self._database.read() as connection:
            row = connection.execute(_SELECT.where(tokens.c.id == id)).one_or_none()
        if row is None:
            raise NotFoundError("token", id)
        return _to_token(row)

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Token]:
        """Return a page of API tokens, oldest first, revoked ones included."""
        query = _SELECT.order_by(tokens.c.id).limit(check_limit(limit) + 1)
        if cursor is not None:
            query = query.where(tokens.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            found = [_to_token(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda token: (token.id.hex,))

    @retry_on_rollback
    def revoke(self, id: UUID, *, actor: str) -> Token:  # noqa: A002 - the contract's name
        """Revoke an API token and the tokens of its logins; a repeated call is no error."""
        with self._database.write() as connection:
            token = read_token(connection, id)
            if token is None:
                raise NotFoundError("token", id)
            return revoke_token(connection, token, db_now(connection), actor=actor)


def insert_token(connection: Connection, now: datetime, secret: str, **values: Any) -> Token:
    """Write the row of a new API token and return its record."""
    key = uuid7()
    row = {"id": key, "digest": digest_of(secret), "created_at": now, **values}
    connection.execute(insert(tokens).values(row))
    return _to_token(connection.execute(_SELECT.where(tokens.c.id == key)).one())


def read_token(connection: Connection, id: UUID) -> Token | None:  # noqa: A002
    """Return an API token in a caller's transaction, or None."""
    row = connection.execute(_SELECT.where(tokens.c.id == id)).one_or_none()
    return None if row is None else _to_token(row)


def revoke_token(connection: Connection, token: Token, now: datetime, *, actor: str) -> Token:
    """Revoke an API token, the tokens of its logins, and their tokens in turn.

    Each row is written before its children are searched: a login locks the row of the token that
    created it, so no new child appears afterwards.
    """
    ending = [token]
    for each in ending:
        over = update(tokens).where(tokens.c.id == each.id, tokens.c.revoked_at.is_(None))
        if connection.execute(over.values(revoked_at=now)).rowcount:
            data = {"name": each.name, "role": each.role}
            record_event(connection, now, actor, "token_revoked", "token", each.id, data=data)
        of_it = _SELECT.where(tokens.c.parent_id == each.id, tokens.c.revoked_at.is_(None))
        ending += [_to_token(row) for row in connection.execute(of_it)]
    return _to_token(connection.execute(_SELECT.where(tokens.c.id == token.id)).one())


def _revoke_expired_namesake(connection: Connection, name: str, now: datetime) -> None:
    """Mark an expired API token as revoked, so that its name is free."""
    over = (tokens.c.name == name, tokens.c.revoked_at.is_(None), tokens.c.expires_at <= now)
    connection.execute(update(tokens).where(*over).values(revoked_at=tokens.c.expires_at))


def _to_token(row: Row[Any]) -> Token:
    """Return the record of an API token from its row."""
    return record_of(Token, row)
