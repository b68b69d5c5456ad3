"""/v1/tokens: access tokens, for operators. /v1/token: the caller's own."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.schemas.tenants import TokenCreated, TokenInput
from controller.rest.schemas.values import PageOf, PageQuery
from registry import InvalidError, NotFoundError, Registry, UnknownNameError
from registry.db import Page
from registry.tenancy import SaltedToken, Token

router = APIRouter(
    prefix="/tokens", tags=["tokens"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
#: The caller's own token. It has its own path, as below /tokens its name would be taken for an id.
own = APIRouter(
    prefix="/token", tags=["tokens"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(SaltedToken)


@router.post(
    "", status_code=201, response_model=TokenCreated, responses=problem_responses(403, 409)
)
def make_token(
    body: TokenInput, caller: Operator, services: ServicesDep, creation: IdempotencyDep
) -> Response:
    """Create a token. Only this answer shows its secret, and one repeated by the same caller.

    A login, or another token that ends, creates operators' tokens that live at most as long as the
    site's setting says.
    """
    if body.role == "operator" and body.tenant is not None:
        raise InvalidError("tenant", body.tenant, "null for an operator's token")
    if body.role == "tenant" and body.tenant is None:
        raise InvalidError("tenant", None, "the name of the token's tenant")

    ttl_s = services.operator_token_ttl_s if body.role == "operator" else None
    if body.ttl_s is not None:
        ttl_s = None if body.ttl_s == "never" else body.ttl_s
        if body.role == "operator" and caller.ends:
            _check_lifetime(body.ttl_s, services.operator_token_ttl_s)

    def create(registry: Registry) -> SaltedToken:
        derivation = creation.derivation()
        try:
            token, _ = registry.tokens.create(
                role=body.role,
                tenant=body.tenant,
                name=body.name,
                read_only=body.read_only,
                ttl_s=ttl_s,
                actor=caller.actor,
                derivation=derivation,
            )
        except NotFoundError as error:
            raise UnknownNameError("tenant", "tenant", body.tenant) from error
        return SaltedToken(token=token, salt=derivation.salt)

    def shown(made: SaltedToken) -> bytes:
        secret = creation.derivation(made.salt).token()
        return TokenCreated.of(made.token, secret).model_dump_json().encode()

    return creation.answer(body, create, status=201, adapter=_ADAPTER, shown=shown, of_caller=True)


@router.get("", response_model=PageOf[Token], responses=problem_responses(403))
def list_tokens(
    query: Annotated[PageQuery, Query()], caller: Operator, registry: RegistryDep
) -> Page[Token]:
    """List tokens, including revoked ones, without their secrets."""
    return registry.tokens.list(limit=query.limit, cursor=query.cursor)


@own.get("", response_model=Token)
def show_own_token(caller: AnyCaller, registry: RegistryDep) -> Token:
    """Show the token of this call: whom it stands for, whether it only reads, when it ends."""
    return registry.tokens.get(caller.token_id)


@own.delete("", response_model=Token, responses=problem_responses(403, 409))
def end_own_token(caller: AnyCaller, services: ServicesDep) -> Token:
    """Log out: end the token of this call, if a login gave it."""
    return services.registry.logins.log_out(caller.token_id, actor=caller.actor)


@router.delete("/{token_id}", response_model=Token, responses=problem_responses(403, 404))
def revoke_token(token_id: UUID, caller: Operator, registry: RegistryDep) -> Token:
    """Revoke a token immediately."""
    return registry.tokens.revoke(token_id, actor=caller.actor)


def _check_lifetime(lifetime: int | str, max_s: int | None) -> None:
    """Refuse a longer lifetime than allowed: an expiring token must not create a permanent one."""
    if max_s is None or (isinstance(lifetime, int) and lifetime <= max_s):
        return
    raise InvalidError(
        "ttl_s",
        lifetime,
        f"at most {max_s}, by FUGA_OPERATOR_TOKEN_DAYS: the token of this call ends itself;"
        " use one without an end, or `fuga db token` where the database is known",
    )
