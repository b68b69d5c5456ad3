"""Placement constraints of a request, in the register center's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from registry.requests import MembershipRule, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConstraints:
    """Labels, host names and rules of a request; equal tables are shared."""

    requires: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    rules: Rules = field(default_factory=Rules)
    avoid: tuple[object, ...] = ()  #: hosts where builds failed: none do here

    @property
    def memberships(self) -> tuple[tuple[bool, MembershipRule], ...]:
        """The VM groups that VMs keep apart in (True) or together in (False)."""
        rules = ((True, self.rules.anti_affinity), (False, self.rules.affinity))
        return tuple((apart, rule) for apart, rule in rules if rule is not None)

    @property
    def is_ruled(self) -> bool:
        """Whether the hosts of a request's VMs must be tracked one by one."""
        return bool(self.memberships) or self.rules.spread is not None

    def document(self) -> dict[str, Any]:
        """Return the constraints as JSON values, which `from_document` reads back."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RequestConstraints:
        """Build the constraints from the JSON values that `document` returned."""
        said = dict(document["rules"])
        for name in ("anti_affinity", "affinity"):
            said[name] = None if said[name] is None else MembershipRule(**said[name])
        for name in ("forbids", "prefers"):
            said[name] = tuple(said[name])
        hosts = document["hosts"]
        return cls(
            requires=tuple(document["requires"]),
            hosts=None if hosts is None else tuple(hosts),
            rules=Rules(**said),
            avoid=tuple(document["avoid"]),
        )
