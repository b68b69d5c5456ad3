"""Whom claims let in: the first rule that fits, and nobody without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from controller.oidc_mapping import OidcRule, is_private_address, match_admission
from controller.settings import ControllerSettings

RULES = (
    OidcRule(claim="realm_access.roles", value="cloud-admin", operator=True),
    OidcRule(claim="groups", value="auditors", operator=True, read_only=True),
    OidcRule(claim="groups", value="physics", tenant="physics"),
    OidcRule(claim="https://example.org/groups", value="biology", tenant="biology"),
    OidcRule(claim="email", value="guest@example.org", tenant="guests", read_only=True),
)


def let_in(tenant: str | None = None, **claims: Any) -> tuple[str, str | None, bool] | None:
    said = {"iss": "https://sso", "sub": "u1", **claims}
    found = match_admission(said, RULES, name_claim="preferred_username", tenant=tenant)
    return None if found is None else (found.role, found.tenant, found.read_only)


@pytest.mark.parametrize(
    ("claims", "whom"),
    [
        ({"realm_access": {"roles": ["cloud-admin"]}}, ("operator", None, False)),
        ({"groups": ["staff", "auditors", "physics"]}, ("operator", None, True)),
        ({"groups": "physics"}, ("tenant", "physics", False)),
        ({"https://example.org/groups": ["biology"]}, ("tenant", "biology", False)),
        ({"email": "guest@example.org", "email_verified": True}, ("tenant", "guests", True)),
        ({"email": "guest@example.org"}, None),
        ({"email": "guest@example.org", "email_verified": "true"}, None),
        ({"groups": ["physicsX", "Physics"]}, None),
        ({"groups": {"physics": True}}, None),
        ({"groups": None, "realm_access": "cloud-admin"}, None),
        ({}, None),
    ],
)
def test_the_first_rule_that_fits_says_as_whom_and_nobody_is_let_in_by_default(
    claims: dict[str, Any], whom: tuple[str, str | None, bool] | None
) -> None:
    assert let_in(**claims) == whom


def test_who_is_of_several_says_as_which_tenant() -> None:
    assert let_in("physics", groups=["auditors", "physics"]) == ("tenant", "physics", False)
    assert let_in("biology", groups=["auditors", "physics"]) is None


@pytest.mark.parametrize(
    ("said", "name"), [("Anna.Müller@x", "anna.m-ller-x"), ("...", "user"), (7, "user")]
)
def test_a_name_becomes_what_a_token_can_be_called(said: Any, name: str) -> None:
    claims = {"iss": "i", "sub": "s", "groups": "physics", "name": said}

    found = match_admission(claims, RULES, name_claim="name")

    assert found is not None
    assert found.name == name


def test_a_rule_for_nobody_or_for_both_is_refused() -> None:
    for given in ({}, {"tenant": "a", "operator": True}, {"tenant": "a", "group": "b"}):
        with pytest.raises(ValidationError):
            OidcRule.model_validate({"claim": "groups", "value": "x", **given})
    with pytest.raises(ValidationError):
        OidcRule(claim="groups", value="", tenant="a")


@pytest.mark.parametrize(
    "address",
    ["http://sso.example.org", "https://", "https://u:p@sso", "https://sso/#x", "ftp://sso", "x",
     "https://ü", "https://sso /", "http://127.0.0.1.evil", "https://[::1"],
)  # fmt: skip
def test_an_address_that_others_could_read_or_take_is_none_of_a_provider(address: str) -> None:
    assert not is_private_address(address, local=True)


def test_rules_stand_in_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fuga.toml"
    file.write_text(
        'oidc_issuer = "https://sso.example.org/realms/site"\noidc_client_id = "fuga"\n'
        '[[oidc_rules]]\nclaim = "groups"\nvalue = "physics"\ntenant = "physics"\n'
    )
    monkeypatch.setenv("FUGA_CONFIG", str(file))

    assert ControllerSettings().oidc_rules == (RULES[2],)

    for wrong in (
        'oidc_issuer = "http://sso.example.org"\noidc_client_id = "fuga"',
        'oidc_issuer = "https://sso.example.org"',
        'oidc_issuer = "https://sso"\noidc_client_id = "fuga"\noidc_scopes = ["email"]',
    ):
        file.write_text(wrong)
        with pytest.raises(ValidationError, match="oidc_"):
            ControllerSettings()
