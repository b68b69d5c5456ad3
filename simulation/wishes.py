"""What a request asks of hosts beyond their size, as the register center has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from registry import MembershipRule, Rules, allows
from simulation.cluster import SimHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Labels, names and rules; equal ones of many requests are one."""

    requires: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    rules: Rules = field(default_factory=Rules)
    avoid: tuple[object, ...] = ()  #: hosts where builds failed: none do here

    @property
    def memberships(self) -> tuple[tuple[bool, MembershipRule], ...]:
        """Groups that its VMs keep apart in (True) or together in (False)."""
        rules = ((True, self.rules.anti_affinity), (False, self.rules.affinity))
        return tuple((apart, rule) for apart, rule in rules if rule is not None)

    @property
    def is_ruled(self) -> bool:
        """Whether where its VMs are must be remembered one by one."""
        return bool(self.memberships) or self.rules.spread is not None


def may_use(wishes: Wishes, host: SimHost) -> bool:
    """Return whether a request may use a host, as the register center says."""
    return allows(wishes.rules, wishes.requires, wishes.hosts, host=host.name, labels=host.labels)
