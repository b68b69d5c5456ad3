"""/v1/login: exchanges a code of a link or of the provider for a token. /v1/login/links: links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Security
from pydantic import BaseModel, Field, SecretStr, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from controller.rest.dependencies import ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems.errors import LoginRefusedError, ProviderError
from controller.rest.schemas.tenants import TokenCreated
from controller.rest.schemas.values import Input, Name
from registry import InvalidError, NotFoundError, Registry
from registry.tenancy import LINK_TTL_S, SaltedLink

#: Routes for callers without a token.
entrance = APIRouter(prefix="/login", tags=["tokens"], route_class=BoundedRoute)
links = APIRouter(
    prefix="/login/links",
    tags=["tokens"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)
#: One message for all invalid codes, so that it reveals nothing about them.
_NO_SUCH_LINK: Final = (
    "this link was used, is over, or never was one: it logs in once, within"
    f" {LINK_TTL_S // 60} minutes; `fuga login --link` makes another"
)


class LoginInput(Input):
    """Exchange a proof of identity for a token."""

    code: Annotated[SecretStr, Field(min_length=1, max_length=8192)] = Field(
        description="Of a one-time link: what follows `#login=`. Or the provider's."
    )
    verifier: Annotated[SecretStr, Field(min_length=43, max_length=128)] | None = Field(
        None, description="With the provider's code: the PKCE verifier."
    )
    redirect_uri: Annotated[str, Field(min_length=1, max_length=2000)] | None = Field(
        None, description="With the provider's code: where it brought it."
    )
    tenant: Name | None = Field(
        None, description="With the provider's code: as which tenant, of several."
    )


class LoginProvider(BaseModel):
    """Log in by OpenID Connect: what a client needs to send a browser there (PKCE, S256).

    The `nonce` is the unpadded base64url SHA-256 of `nonce.` and the verifier.
    """

    issuer: str
    client_id: str
    scope: str
    authorization_endpoint: str | None = Field(description="Null while it cannot be used.")
    response_mode: Literal["fragment", "query"]
    problem: str | None = Field(description="Why it cannot be used.")


class LoginMethods(BaseModel):
    """How one may log in, apart from a token or a one-time link."""

    provider: LoginProvider | None = Field(description="Null: this site has none.")


class LinkInput(Input):
    """Make a link that logs in once, with the rights of the calling token or less."""

    read_only: bool = Field(False, description="The login may read only.")


class LinkCreated(BaseModel):
    """A link's code. Only this answer holds it: fuga stores its hash."""

    id: UUID
    read_only: bool
    expires_at: datetime
    code: str | None = Field(
        description="The link is the web console's address with `#login=CODE`. An answer repeated"
        " for its Idempotency-Key shows it again."
    )


_ADAPTER: Final = TypeAdapter(SaltedLink)


@entrance.get("", response_model=LoginMethods)
async def show_login_methods(services: ServicesDep) -> LoginMethods:
    """Show how one may log in. Needs no token."""
    provider = services.provider
    if provider is None:
        return LoginMethods(provider=None)
    described, problem = None, None
    try:
        described = await provider.metadata_at_once()
    except ProviderError as error:
        problem = str(error)
    return LoginMethods(
        provider=LoginProvider(
            issuer=provider.settings.issuer,
            client_id=provider.settings.client_id,
            scope=" ".join(provider.settings.scopes),
            authorization_endpoint=None if described is None else described.authorization_endpoint,
            response_mode="fragment" if described and described.in_fragment else "query",
            problem=problem,
        )
    )


@entrance.post(
    "", status_code=201, response_model=TokenCreated, responses=problem_responses(401, 429, 504)
)
async def log_in(body: LoginInput, services: ServicesDep) -> TokenCreated:
    """Exchange a code for a token of limited life. Needs no token.

    The code of a one-time link stands alone; the provider's has `verifier` and `redirect_uri`.
    """
    logins, life_s = services.registry.logins, services.login_life_s
    code = body.code.get_secret_value()
    if body.verifier is None:
        found = await run_in_threadpool(logins.exchange, code, life_s=life_s)
        if found is None:
            raise LoginRefusedError(_NO_SUCH_LINK)
        return TokenCreated.of(*found)
    if services.provider is None:
        raise LoginRefusedError("this site has no provider to log in by")
    if body.redirect_uri is None:
        raise InvalidError("redirect_uri", None, "where the provider brought the code")
    admission = await services.provider.admit(
        code, body.verifier.get_secret_value(), body.redirect_uri, tenant=body.tenant
    )
    try:
        return TokenCreated.of(*await run_in_threadpool(logins.admit, admission, life_s=life_s))
    except (InvalidError, NotFoundError) as error:
        raise LoginRefusedError(f"the rule that lets you in names no tenant: {error}") from error


@links.post("", status_code=201, response_model=LinkCreated, responses=problem_responses(409))
def make_login_link(body: LinkInput, caller: AnyCaller, creation: IdempotencyDep) -> Response:
    """Create a single-use login link for the caller.

    The session has the caller's rights and ends no later than the caller's token.
    """

    def create(registry: Registry) -> SaltedLink:
        derivation = creation.derivation()
        link, _ = registry.logins.make_link(
            caller.token_id, actor=caller.actor, read_only=body.read_only, derivation=derivation
        )
        return SaltedLink(link=link, salt=derivation.salt)

    def shown(made: SaltedLink) -> bytes:
        link, code = made.link, creation.derivation(made.salt).login_code()
        answer = LinkCreated(
            id=link.id, read_only=link.read_only, expires_at=link.expires_at, code=code
        )
        return answer.model_dump_json().encode()

    return creation.answer(body, create, status=201, adapter=_ADAPTER, shown=shown, of_caller=True)
