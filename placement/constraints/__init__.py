"""Wrappers that make every policy keep constraints, quotas, zones and reserved hosts.

From the outside in, each with the reason for its place:

1. `ConstrainedPolicy` makes eligibility and room of constraints, and decides in runs with fewer and
   fewer soft constraints. It is outermost, because every run is a whole decision of what lies
   within.
2. `AllowancesPolicy` offers what quotas leave, pass by pass. Quotas hold for the whole cluster,
   so it lies around the zones; what a group or spread makes of requests it sees as requests.
3. `ZonesPolicy`, where zones have policies of their own, lets one after the other decide.
4. `TreeWeightsPolicy` makes weights of a tree of tenants, for a policy that knows no tree.
5. `StarvationReserve` keeps hosts for requests that starve. Starvation is judged by the flat
   weights and by what is held, and what it closes no rule around it opens again.
6. `MemoryPolicy` counts past holdings as held. It is innermost: quotas, gangs and starvation go by
   what is held.
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.constraints.allowances_policy import AllowancesPolicy
from placement.constraints.constrained_policy import ConstrainedPolicy
from placement.constraints.memory_policy import MemoryPolicy
from placement.constraints.starvation_reserve import StarvationReserve
from placement.constraints.starving_requests import StarvationPatience
from placement.constraints.tree_weights import TreeWeightsPolicy
from placement.constraints.zones import Zone, ZonesPolicy
from placement.model.snapshot import Policy


def policy_with_patience(policy: Policy, patience: StarvationPatience) -> Policy:
    """Return a fair policy that reserves hosts for requests that starve under it."""
    return StarvationReserve(MemoryPolicy(policy), patience)


def policy_with_rules(policy: Policy, *, reads_tree: bool) -> Policy:
    """Return the policy within all rules; with ``reads_tree`` it handles trees itself."""
    inner = policy if isinstance(policy, StarvationReserve) else MemoryPolicy(policy)
    return _wrap_in_all_rules(inner if reads_tree else TreeWeightsPolicy(inner))


def zone_policies_with_rules(zones: Sequence[Zone]) -> Policy:
    """Return the policies of zones within the rules that hold across zones."""
    return _wrap_in_all_rules(ZonesPolicy(zones))


def _wrap_in_all_rules(policy: Policy) -> Policy:
    """Wrap a policy so that it keeps constraints, and then quotas."""
    return ConstrainedPolicy(AllowancesPolicy(policy))
