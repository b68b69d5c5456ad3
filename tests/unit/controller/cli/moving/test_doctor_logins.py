"""What the doctor says of logins at a provider."""

from __future__ import annotations

from controller.cli.doctor.logins import login_findings
from controller.oidc_mapping import OidcRule

ISSUER = {"issuer": "https://sso.example.org", "problem": None}
TENANTS = [{"name": "physics", "is_group": False}, {"name": "lab", "is_group": True}]
SOUND = OidcRule(claim="groups", value="physics", tenant="physics")


def told(*rules: OidcRule, provider: dict[str, object] | None = ISSUER) -> list[str]:
    return [each.message for each in login_findings(rules, provider, TENANTS) if not each.well]


def test_sound_rules_and_a_provider_that_answers_are_well() -> None:
    assert told(SOUND) == []
    assert told(provider=None) == []


def test_a_provider_that_does_not_answer_or_lets_nobody_in_is_told() -> None:
    assert told(SOUND, provider={**ISSUER, "problem": "no route"}) == [
        "https://sso.example.org: no route"
    ]
    assert told() == ["no oidc_rules are set: no user of the provider is admitted"]


def test_rules_that_let_nobody_in_or_anybody_are_told_by_their_number() -> None:
    gone = OidcRule(claim="groups", value="x", tenant="chemistry")
    group = OidcRule(claim="groups", value="x", tenant="lab")
    by_name = OidcRule(claim="preferred_username", value="ann", operator=True)

    found = told(SOUND, gone, group, by_name)

    assert [each.split(":")[0] for each in found] == [f"rule {n} of oidc_rules" for n in (2, 3, 4)]
    assert "there is no tenant chemistry" in found[0]
    assert "lab is a group" in found[1]
    assert "users may change preferred_username" in found[2]
