"""Who calls: bearer tokens, and the two roles.

A tenant sees and touches what is its own; what belongs to another does not exist for
it (404), so that ids cannot be probed. An operator sees all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest

from controller.rest.errors import ForbiddenError, UnauthorizedError
from registry import Registry, Token

#: Declares the scheme in the OpenAPI document; `authenticate` does the work, earlier.
bearer: Final = HTTPBearer(
    auto_error=False, description="A token of `fuga token add`, of an operator or a tenant."
)

CREDENTIALS: Final = re.compile(r"(?i:bearer) +([!-~]{1,512})")


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a live token."""

    token: str  #: its name, never its secret
    tenant: str | None  #: None for operators

    @classmethod
    def of(cls, token: Token) -> Caller:
        """Return the caller that a token stands for."""
        return cls(token.name, token.tenant if token.role == "tenant" else None)

    @property
    def is_operator(self) -> bool:
        """Whether this caller sees and does everything."""
        return self.tenant is None

    @property
    def actor(self) -> str:
        """How events name this caller."""
        return f"operator:{self.token}" if self.is_operator else f"tenant:{self.tenant}"

    @property
    def scope(self) -> str:
        """Within which an Idempotency-Key is unique."""
        return "operator" if self.is_operator else f"tenant:{self.tenant}"

    def sees(self, tenant: str | None) -> bool:
        """Whether what belongs to this tenant exists for the caller."""
        return self.is_operator or (tenant is not None and tenant == self.tenant)

    def tenant_to_list(self, asked: str | None) -> str | None:
        """Return the tenant whose things a list may hold; None: of all."""
        if self.is_operator:
            return asked
        if asked not in (None, self.tenant):
            raise ForbiddenError(
                f"tenant {self.tenant} may list only its own, not those of {asked}"
            )
        return self.tenant


def authenticate(registry: Registry, headers: Headers) -> Caller:
    """Return who calls, or raise `UnauthorizedError`. Reads the database."""
    header = headers.get("authorization")
    if header is None:
        raise UnauthorizedError("there is no token")
    credentials = CREDENTIALS.fullmatch(header.strip())
    if credentials is None:
        raise UnauthorizedError("the Authorization header is not 'Bearer TOKEN'")
    token = registry.tokens.authenticate(credentials[1])
    if token is None:
        raise UnauthorizedError("the token is unknown or revoked")
    return Caller.of(token)


def _caller(request: HttpRequest) -> Caller:
    return cast(Caller, request.state.caller)  # put there by the Authentication middleware


def _operator(request: HttpRequest) -> Caller:
    caller = _caller(request)
    if not caller.is_operator:
        raise ForbiddenError(f"only an operator may do this, not tenant {caller.tenant}")
    return caller


AnyCaller = Annotated[Caller, Depends(_caller)]
Operator = Annotated[Caller, Depends(_operator)]
