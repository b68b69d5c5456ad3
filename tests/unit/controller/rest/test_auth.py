"""Who a caller is, and what it may see."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import Mock

import pytest
from starlette.datastructures import Headers

from controller.rest.middleware.callers import Authenticator, Caller
from controller.rest.problems.errors import ForbiddenError, UnauthorizedError
from registry import Registry
from registry.tenancy import Token

OPERATOR = Caller("ops", None, token_id=uuid.UUID(int=0))
TENANT_A = Caller("laptop", "a", token_id=uuid.UUID(int=1))


class Tokens:
    """Knows one token."""

    tokens: Any

    def __init__(self, secret: str) -> None:
        self.tokens = self
        self._secret = secret

    def authenticate_all(self, secrets: Sequence[str]) -> list[Token | None]:
        return [self._of(secret) for secret in secrets]

    def _of(self, secret: str) -> Token | None:
        if secret != self._secret:
            return None
        return Token(
            id=uuid.UUID(int=1),
            name="laptop",
            role="tenant",
            tenant="a",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            revoked_at=None,
        )


def knowing(secret: str) -> Registry:
    return cast(Registry, Tokens(secret))


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret "])
def test_a_known_token_names_its_tenant(header: str):
    gate = Authenticator(knowing("s3cret"))

    caller = asyncio.run(gate.authenticate(Headers({"authorization": header})))

    assert caller == TENANT_A
    assert caller.actor == "tenant:a"
    assert caller.scope == "tenant:a"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no token was sent"),
        ({"authorization": ""}, "is not 'Bearer TOKEN'"),
        ({"authorization": "Basic czNjcmV0"}, "is not 'Bearer TOKEN'"),
        ({"authorization": "Bearer"}, "is not 'Bearer TOKEN'"),
        ({"authorization": "Bearer two words"}, "is not 'Bearer TOKEN'"),
        ({"authorization": "Bearer " + "x" * 5000}, "is not 'Bearer TOKEN'"),
        ({"authorization": "Bearer other"}, "unknown, revoked or expired"),
    ],
)
def test_everything_else_is_refused_with_what_to_do(headers: dict[str, str], reason: str):
    gate = Authenticator(knowing("s3cret"))

    with pytest.raises(UnauthorizedError, match=reason) as refused:
        asyncio.run(gate.authenticate(Headers(headers)))

    assert "Authorization: Bearer TOKEN" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_two_tokens_in_one_call_are_refused_though_the_first_is_good():
    twice = Headers(raw=[(b"authorization", b"Bearer s3cret"), (b"authorization", b"Bearer x")])

    with pytest.raises(UnauthorizedError, match="more than one Authorization header"):
        asyncio.run(Authenticator(knowing("s3cret")).authenticate(twice))


def test_a_tenant_sees_its_own_and_an_operator_sees_all():
    assert TENANT_A.sees("a")
    assert not TENANT_A.sees("b")
    assert not TENANT_A.sees(None)
    assert OPERATOR.sees("a")
    assert OPERATOR.sees(None)


def test_a_tenant_lists_its_own_whether_it_says_so_or_not():
    registry = Mock()

    assert TENANT_A.tenant_to_list(None, registry) == "a"
    assert TENANT_A.tenant_to_list("a", registry) == "a"
    assert OPERATOR.tenant_to_list(None, registry) is None
    assert OPERATOR.tenant_to_list("b", registry) == "b"
    registry.tenants.check_known.assert_called_once_with("b")
    with pytest.raises(ForbiddenError):
        TENANT_A.tenant_to_list("b", registry)
