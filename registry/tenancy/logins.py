"""Logins: single-use codes with a short life, and the tokens for which they are exchanged.

A code is random and stored as its hash, as tokens are. A login's token ends with the token that
created the code, when that expires or is revoked.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from registry.audit.events import record_event
from registry.db.audit_context import audited_call_of
from registry.db.clock import UtcNow, db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.schema import login_codes, tokens
from registry.errors import ConflictError, NotFoundError
from registry.records.tenancy import Login, LoginLink, Role, SaltedLink, Token
from registry.tenancy.derived_secrets import CODE_BYTES, OF_CODES, Derivation
from registry.tenancy.tokens import digest_of, insert_token, new_secret, read_token, revoke_token
from registry.tenancy.tree import lock_requesting_tenant

#: How long a link may wait for the browser that opens it.
LINK_TTL_S: Final = 600
#: Open logins at a time; each is a row.
MAX_LINKS: Final = 20
#: That came of one token, or of its logins, are in force or wait: they all end when it does.
MAX_LOGINS: Final = 200
#: The length of a user's name in a token's name; a suffix distinguishes the user's logins.
_STEM: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The identity of a user for whom another party vouches."""

    role: Role
    tenant: str | None
    read_only: bool
    name: str  #: what is readable of his name
    event_data: Mapping[str, str]  #: the provider and the user


class Logins(Repository):
    """Creates login codes, and exchanges them for tokens."""

    @retry_on_rollback
    def make_link(
        self,
        token_id: UUID,
        *,
        actor: str,
        read_only: bool = False,
        derivation: Derivation | None = None,
    ) -> tuple[LoginLink, str]:
        """Create a single-use login code with the rights of a token, or fewer; it is returned once.

        With a ``derivation`` its creator can derive the code again.

        Raises
        ------
        ConflictError
            If too many of this token wait to be used, too many logins came of it or of the token
            that it came of, or it has ended.
        """
        key = uuid7()
        if derivation is None:
            code = f"{OF_CODES}{secrets.token_urlsafe(CODE_BYTES)}"
        else:
            code = derivation.login_code()
        with self._database.write() as connection:
            now = db_now(connection)
            token = _token_in_force(connection, token_id, now)
            if token is None:
                raise ConflictError("the token has ended")
            waiting = (*_open_link_conditions(now), login_codes.c.token_id == token_id)
            if connection.scalars(select(func.count()).where(*waiting)).one() >= MAX_LINKS:
                raise ConflictError(
                    f"{MAX_LINKS} links of this token wait to be opened; they end within"
                    f" {LINK_TTL_S // 60} minutes"
                )
            if _count_logins_of_origin(connection, token_id, now) >= MAX_LOGINS:
                raise ConflictError(
                    f"{MAX_LOGINS} logins and links came of one token, this one or the one that"
                    " it came of, and are in force; log out where they are not needed"
                )
            ends = _earlier_end(now + timedelta(seconds=LINK_TTL_S), token.expires_at)
            only = read_only or token.read_only
            connection.execute(
                insert(login_codes).values(
                    id=key,
                    digest=digest_of(code),
                    token_id=token_id,
                    read_only=only,
                    created_at=now,
                    expires_at=ends,
                )
            )
            data = {"name": token.name, "read_only": only}
            record_event(connection, now, actor, "login_link_made", "token", token_id, data=data)
            link = LoginLink(id=key, read_only=only, expires_at=ends)
            if derivation is not None:
                store_result(connection, SaltedLink(link=link, salt=derivation.salt))
            return link, code

    @retry_on_rollback
    def exchange(self, code: str, *, life_s: int) -> tuple[Token, str] | None:
        """Return an API token for a login code; None if the code is unknown, used or expired."""
        digest = digest_of(code)
        with self._database.read_statement() as connection:  # strangers' guesses are no writes
            known = select(login_codes.c.id).where(
                login_codes.c.digest == digest, *_open_link_conditions(UtcNow())
            )
            key = connection.execute(known).scalar_one_or_none()
        if key is None:
            return None
        with self._database.write() as connection:
            now = db_now(connection)
            used = (
                update(login_codes)
                .where(login_codes.c.id == key, *_open_link_conditions(now))
                .values(used_at=now)
                .returning(login_codes.c.token_id, login_codes.c.read_only)
            )
            found = connection.execute(used).one_or_none()
            parent = None if found is None else _token_in_force(connection, found.token_id, now)
            if found is None or parent is None:
                return None
            return _create_login_token(
                connection,
                now,
                "link",
                stem=parent.name,
                role=parent.role,
                tenant=parent.tenant,
                read_only=found.read_only or parent.read_only,
                ends=_earlier_end(now + timedelta(seconds=life_s), parent.expires_at),
                parent_id=parent.id,
                detail={"by": parent.name},
            )

    @retry_on_rollback
    def admit(self, admission: Admission, *, life_s: int) -> tuple[Token, str]:
        """Return an API token for a user for whom an identity provider vouches.

        Raises
        ------
        NotFoundError
            If there is no such tenant.
        """
        with self._database.write() as connection:
            now = db_now(connection)
            return _create_login_token(
                connection,
                now,
                "oidc",
                stem=admission.name,
                role=admission.role,
                tenant=admission.tenant,
                read_only=admission.read_only,
                ends=now + timedelta(seconds=life_s),
                parent_id=None,
                detail=admission.event_data,
            )

    @retry_on_rollback
    def log_out(self, token_id: UUID, *, actor: str) -> Token:
        """Revoke a login's token, and the tokens that it created.

        Raises
        ------
        ConflictError
            If it is not of a login: programs may use it elsewhere.
        """
        with self._database.write() as connection:
            token = read_token(connection, token_id)
            if token is None:
                raise NotFoundError("token", token_id)
            if token.login is None:
                raise ConflictError(
                    f"token {token.name} is not of a login: its creator revokes it"
                    " (`fuga token revoke`)"
                )
            return revoke_token(connection, token, db_now(connection), actor=actor)


def _open_link_conditions(now: datetime | UtcNow) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a login code is unused and has not expired."""
    return login_codes.c.used_at.is_(None), login_codes.c.expires_at > now


def _count_logins_of_origin(connection: Connection, token_id: UUID, now: datetime) -> int:
    """Count the logins and links in force that originate from the same token as this one."""
    above = select(tokens.c.id, tokens.c.parent_id).where(tokens.c.id == token_id)
    line = above.cte("line", recursive=True)
    line = line.union_all(
        select(tokens.c.id, tokens.c.parent_id).where(tokens.c.id == line.c.parent_id)
    )
    all_of = select(line.c.id).where(line.c.parent_id.is_(None)).cte("all_of", recursive=True)
    in_force = (tokens.c.revoked_at.is_(None), tokens.c.expires_at > now)
    all_of = all_of.union_all(
        select(tokens.c.id).where(tokens.c.parent_id == all_of.c.id, *in_force)
    )
    theirs = login_codes.c.token_id.in_(select(all_of.c.id))
    logins = select(func.count()).select_from(all_of).scalar_subquery()
    waiting = select(func.count()).where(theirs, *_open_link_conditions(now)).scalar_subquery()
    found: int = connection.execute(select(logins + waiting)).scalar_one()
    return found - 1


def _token_in_force(connection: Connection, token_id: UUID, now: datetime) -> Token | None:
    """Return a token in force, or None; a revocation waits until this transaction ends."""
    connection.execute(select(tokens.c.id).where(tokens.c.id == token_id).with_for_update())
    token = read_token(connection, token_id)
    if token is None or token.revoked_at is not None:
        return None
    return None if token.expires_at is not None and token.expires_at <= now else token


def _earlier_end(end: datetime, other: datetime | None) -> datetime:
    """Return the earlier of two expiry times of tokens; None is never."""
    return end if other is None else min(end, other)


def _create_login_token(
    connection: Connection,
    now: datetime,
    login: Login,
    *,
    stem: str,
    role: Role,
    tenant: str | None,
    read_only: bool,
    ends: datetime,
    parent_id: UUID | None,
    detail: Mapping[str, str],
) -> tuple[Token, str]:
    """Create the API token of a login with its event; return the token and its secret."""
    name = f"{stem[:_STEM].rstrip('._-')}-{login}-{secrets.token_hex(5)}"
    secret = new_secret()
    token = insert_token(
        connection,
        now,
        secret,
        name=name,
        role=role,
        tenant_id=None if tenant is None else lock_requesting_tenant(connection, tenant),
        read_only=read_only,
        expires_at=ends,
        login=login,
        parent_id=parent_id,
    )
    actor = f"operator:{name}" if tenant is None else f"tenant:{tenant}"
    data = {"name": name, "login": login, "read_only": read_only, **detail}
    record_event(connection, now, actor, "logged_in", "token", token.id, tenant=tenant, data=data)
    call = audited_call_of(connection)
    if call is not None:  # the caller was not known before
        call.token_id, call.token, call.tenant = token.id, name, tenant
    return token, secret
