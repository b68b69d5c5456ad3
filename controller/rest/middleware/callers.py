"""Bearer tokens: which paths need one, whom they authenticate, and what they allow.

A tenant sees and changes its own resources. Those of other tenants do not exist for it (404), so
that ids cannot be probed. An operator sees all. A read-only token changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, cast
from uuid import UUID

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest

from controller.rest.call_batches import CallBatcher
from controller.rest.problems.errors import ForbiddenError, UnauthorizedError
from registry import InvalidError, Registry
from registry.tenancy import Token

PROTECTED_PREFIX: Final = "/v1"
METRICS_PATH: Final = "/metrics"
LOGIN_PATH: Final = "/v1/login"
SITE_KEYS_PATH: Final = "/v1/site-keys"
#: The paths below the prefix that need no token: one issues tokens, one has public keys.
PUBLIC_PATHS: Final = frozenset({LOGIN_PATH, SITE_KEYS_PATH})
#: Declares the scheme in the OpenAPI document; `Authenticator` authenticates, before any endpoint.
bearer: Final = HTTPBearer(
    auto_error=False, description="An operator's or tenant's token from `fuga token create`."
)

#: Methods that change nothing.
SAFE_METHODS: Final[Collection[str]] = frozenset({"GET", "HEAD", "OPTIONS"})
#: Writes that a read-only token may make: create a read-only login link, and log out.
READ_ONLY_WRITES: Final[Collection[tuple[str, str]]] = frozenset(
    {("POST", f"{LOGIN_PATH}/links"), ("DELETE", "/v1/token")}
)
#: Maximum number of tokens read with one statement.
MAX_TOKENS_PER_READ: Final = 100
CREDENTIALS: Final = re.compile(r"(?i:bearer) +([!-~]{1,512})")


def is_protected(path: str) -> bool:
    """Return whether a path needs a token."""
    return path == METRICS_PATH or (is_api_path(path) and path not in PUBLIC_PATHS)


def is_api_path(path: str) -> bool:
    """Return whether a path belongs to an operation of the API, and not to a page."""
    return path == PROTECTED_PREFIX or path.startswith(PROTECTED_PREFIX + "/")


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of the API, by its valid token: an operator or a tenant."""

    token: str  #: its name, never its secret
    tenant: str | None  #: None for operators
    token_id: UUID
    read_only: bool = False
    ends: bool = False  #: whether its token expires, as tokens of logins do

    @classmethod
    def of(cls, token: Token) -> Caller:
        """Return the caller that a token authenticates."""
        tenant = token.tenant if token.role == "tenant" else None
        ends = token.expires_at is not None
        return cls(token.name, tenant, token.id, token.read_only, ends=ends)

    @property
    def is_operator(self) -> bool:
        """Whether this caller is an operator."""
        return self.tenant is None

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        return f"operator:{self.token}" if self.is_operator else f"tenant:{self.tenant}"

    @property
    def scope_text(self) -> str:
        """The scope of the caller's token in words, for messages."""
        return scope_name(self.tenant, read_only=self.read_only)

    @property
    def scope(self) -> str:
        """The scope in which an Idempotency-Key is unique."""
        return "operator" if self.is_operator else f"tenant:{self.tenant}"

    def sees(self, tenant: str | None) -> bool:
        """Return whether the caller may see resources of a tenant; operators see all."""
        return self.is_operator or (tenant is not None and tenant == self.tenant)

    def tenant_to_list(self, name: str | None, registry: Registry) -> str | None:
        """Return the tenant to which a list is restricted, or None if it is unrestricted.

        Raises
        ------
        ForbiddenError
            If a tenant names another tenant.
        UnknownNameError
            If an operator names a tenant that never existed.
        """
        if self.is_operator:
            if name is not None:
                registry.tenants.check_known(name)
            return name
        if name not in (None, self.tenant):
            raise self.forbidden_error(name, f"may list only its own items, not those of {name}")
        return self.tenant

    def owning_tenant(self, name: str | None, verb: str) -> str:
        """Return the tenant that will own what a call creates; an operator has to name it.

        Raises
        ------
        ForbiddenError
            If a tenant names another one, for which it may not ``verb``.
        InvalidError
            If an operator names none.
        """
        if self.tenant is None:
            if name is None:
                raise InvalidError("tenant", None, "a tenant's name (required for operators)")
            return name
        if name not in (None, self.tenant):
            raise self.forbidden_error(name, f"may not {verb} for {name}")
        return self.tenant

    def forbidden_error(self, tenant: str | None, message: str) -> ForbiddenError:
        """Return the error for a call that needs another tenant's token (None: an operator's)."""
        needed = "operator" if tenant is None else f"{scope_name(tenant)} or operator"
        return ForbiddenError(
            f"tenant {self.tenant} {message}", needed=needed, given=self.scope_text
        )

    def check_method(self, method: str, path: str) -> None:
        """Refuse changes with a read-only token."""
        if self.read_only and method not in SAFE_METHODS and (method, path) not in READ_ONLY_WRITES:
            raise ForbiddenError(
                f"this token is read-only, and {method} may change something",
                needed=scope_name(self.tenant),
                given=self.scope_text,
            )


def scope_name(tenant: str | None, *, read_only: bool = False) -> str:
    """Return a token's scope in words."""
    whose = "operator" if tenant is None else f"tenant {tenant}"
    return f"{whose}, read-only" if read_only else whose


class Authenticator:
    """Finds callers by token; reads the tokens of simultaneous calls together."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._gathering: CallBatcher[str, Token | None] = CallBatcher(
            self._tokens_of, max_members=MAX_TOKENS_PER_READ
        )

    async def authenticate(self, headers: Headers) -> Caller:
        """Return the caller, or raise `UnauthorizedError`. Reads the database."""
        header = headers.get("authorization")
        if header is None:
            raise UnauthorizedError("no token was sent")
        if len(headers.getlist("authorization")) > 1:
            raise UnauthorizedError("the call has more than one Authorization header")
        credentials = CREDENTIALS.fullmatch(header.strip())
        if credentials is None:
            raise UnauthorizedError("the Authorization header is not 'Bearer TOKEN'")
        token = await self._gathering.result(credentials[1])
        if token is None:
            raise UnauthorizedError("the token is unknown, revoked or expired")
        return Caller.of(token)

    def _tokens_of(self, secrets: Sequence[str]) -> Sequence[Token | None]:
        return self._registry.tokens.authenticate_all(secrets)


def caller_of(request: HttpRequest) -> Caller:
    """Return the caller that the Authentication middleware stored."""
    return cast(Caller, request.state.caller)


def check_operator(request: HttpRequest) -> Caller:
    """Return the calling operator, or raise `ForbiddenError`."""
    caller = caller_of(request)
    if not caller.is_operator:
        raise caller.forbidden_error(None, "may not do this; only an operator may")
    return caller


# Coroutines, because they wait for nothing: FastAPI runs plain functions in a thread.
async def _provide_caller(request: HttpRequest) -> Caller:
    return caller_of(request)


async def requires_operator(request: HttpRequest) -> Caller:
    """Return the calling operator, or raise `ForbiddenError`."""
    return check_operator(request)


AnyCaller = Annotated[Caller, Depends(_provide_caller)]
Operator = Annotated[Caller, Depends(requires_operator)]
