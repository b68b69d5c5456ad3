"""What `fuga doctor` finds about logins: the provider, and the rules that admit its users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from controller.cli.doctor.check_result import CheckResult

if TYPE_CHECKING:
    from controller.oidc_mapping import OidcRule

#: A user who may change these at the provider can become any other (OpenID Connect Core, 5.7).
_CHANGEABLE: Final = frozenset({"preferred_username", "nickname", "name"})


def login_findings(
    rules: Sequence[OidcRule],
    provider: Mapping[str, Any] | None,
    tenants: Sequence[Mapping[str, Any]],
) -> Iterator[CheckResult]:
    """Check the login provider as the API sees it, and the rules that admit users.

    Parameters
    ----------
    rules : sequence of OidcRule
        Of the settings.
    provider : mapping or None
        What `GET /v1/login` says of it; None: the API has none.
    tenants : sequence of mapping
        All tenants and groups of the site.
    """
    if provider is not None:
        if provider["problem"]:
            yield CheckResult("logins", False, f"{provider['issuer']}: {provider['problem']}")
        else:
            yield CheckResult("logins", True, f"people log in at {provider['issuer']}")
        if not rules:
            yield CheckResult(
                "logins", False, "no oidc_rules are set: no user of the provider is admitted"
            )
    is_group = {each["name"]: each["is_group"] for each in tenants}
    for number, rule in enumerate(rules, start=1):
        about = f"rule {number} of oidc_rules"
        if rule.tenant is not None and rule.tenant not in is_group:
            why = f"there is no tenant {rule.tenant}: users that match it are refused"
            yield CheckResult("logins", False, f"{about}: {why}")
        elif rule.tenant is not None and is_group[rule.tenant]:
            why = f"{rule.tenant} is a group, which has no logins: name a tenant"
            yield CheckResult("logins", False, f"{about}: {why}")
        if rule.claim in _CHANGEABLE:
            why = f"users may change {rule.claim} at many providers, or get one that was another's"
            yield CheckResult(
                "logins", False, f"{about}: {why}. Take a claim of groups or roles, or sub"
            )
