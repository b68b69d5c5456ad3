"""/v1/login: a token for a code that is good once. /v1/login/links: such codes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Security
from pydantic import BaseModel, Field, SecretStr, TypeAdapter
from starlette.responses import Response

from controller.rest.callers.auth import AnyCaller, bearer
from controller.rest.callers.bodies import BoundedRoute
from controller.rest.dependencies import GivenServices
from controller.rest.pages.openapi import problems
from controller.rest.problems.errors import LoginRefusedError
from controller.rest.schemas.tenants import TokenCreated
from controller.rest.schemas.values import Input
from controller.rest.writes.idempotency import GivenCreation
from registry.tenancy import LINK_TTL_S

#: For those who have no token.
entrance = APIRouter(prefix="/login", tags=["tokens"], route_class=BoundedRoute)
links = APIRouter(
    prefix="/login/links",
    tags=["tokens"],
    dependencies=[Security(bearer)],
    route_class=BoundedRoute,
)
#: One answer for all codes that are none, whatever they were.
_NO_SUCH_LINK: Final = (
    "this link was used, is over, or never was one: it logs in once, within"
    f" {LINK_TTL_S // 60} minutes; `fuga login --link` makes another"
)


class LoginInput(Input):
    """Exchange what proves who you are for a token."""

    code: Annotated[SecretStr, Field(min_length=1, max_length=2048)] = Field(
        description="Of a one-time link: what follows `#login=`."
    )


class LinkInput(Input):
    """Make a link that logs in once, with the rights of the calling token or less."""

    read_only: bool = Field(False, description="The login may read only.")


class LinkCreated(BaseModel):
    """A link's code. Only this answer holds it: fuga stores its hash."""

    id: UUID
    read_only: bool
    expires_at: datetime
    code: str | None = Field(
        description="The link is the web console's address with `#login=CODE`. Null in an answer"
        " repeated for its Idempotency-Key."
    )

    def without_code(self) -> LinkCreated:
        """Return the part that may be stored."""
        return self.model_copy(update={"code": None})


_ADAPTER: Final = TypeAdapter(LinkCreated)


@entrance.post("", status_code=201, response_model=TokenCreated, responses=problems(401, 429))
def log_in(body: LoginInput, services: GivenServices) -> TokenCreated:
    """Exchange the code of a one-time link for a token of limited life. Needs no token."""
    found = services.registry.logins.exchange(
        body.code.get_secret_value(), life_s=services.login_life_s
    )
    if found is None:
        raise LoginRefusedError(_NO_SUCH_LINK)
    return TokenCreated.of(*found)


@links.post("", status_code=201, response_model=LinkCreated, responses=problems(409))
def make_login_link(
    body: LinkInput, caller: AnyCaller, services: GivenServices, creation: GivenCreation
) -> Response:
    """Make a link that logs in once, for the caller: its rights, and no longer than its token."""

    def create() -> LinkCreated:
        link, code = services.registry.logins.make_link(
            caller.token_id, actor=caller.actor, read_only=body.read_only
        )
        return LinkCreated(
            id=link.id, read_only=link.read_only, expires_at=link.expires_at, code=code
        )

    return creation.answer(
        body, create, status=201, adapter=_ADAPTER, kept=LinkCreated.without_code
    )
