"""What each policy rests on and promises: the reader's half of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyNote:
    """Where a policy comes from, what holds, and what it costs.

    Sizes in ``complexity``: p hosts, T kinds of VM, V distinct free vectors, n
    tenants.
    """

    paper: str
    guarantees: str
    complexity: str


POLICY_NOTES: Final[Mapping[str, PolicyNote]] = MappingProxyType(
    {
        "fuga": PolicyNote(
            paper="Xu, Yu: A Game Theory Approach to Fair and Efficient Resource Allocation "
            "in Cloud Computing, Mathematical Problems in Engineering, 2014",
            guarantees="subgame-perfect equilibrium where the game is small (η^p ≤ 20,000), else "
            "a Nash equilibrium once its sweeps end; with quotas each tenant is offered its fair "
            "target first; with the fallback nothing that fits is left out; no sharing incentive "
            "or envy-freeness",
            complexity="exact: η^p; at scale about V T η + p η T and one step per VM",
        ),
        "best_fit_drfh": PolicyNote(
            paper="Wang, Li, Liang: Dominant Resource Fairness in Cloud Computing Systems with "
            "Heterogeneous Servers, INFOCOM 2014; TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n + V) per VM",
        ),
        "best_fit_hdrf": PolicyNote(
            paper="order: Bhattacharya et al.: Hierarchical Scheduling for Diverse Datacenter "
            "Workloads, SoCC 2013; hosts: Wang, Li, Liang, INFOCOM 2014",
            guarantees="nothing that fits is left out; down the tree the least share per weight "
            "is always next; the shares that groups are entitled to hold for one pool only",
            complexity="O(depth log n + log V) per VM",
        ),
        "first_fit": PolicyNote(
            paper="none: the classical baseline",
            guarantees="nothing that fits is left out; no fairness",
            complexity="O(p) per demand",
        ),
        "first_fit_drfh": PolicyNote(
            paper="Wang, Li, Liang: Dominant Resource Fairness in Cloud Computing Systems with "
            "Heterogeneous Servers, INFOCOM 2014; TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n) per VM, and T p once",
        ),
        "two_choices_drfh": PolicyNote(
            paper="Wang, Li, Liang: Multi-Resource Fair Allocation in Heterogeneous Cloud "
            "Computing Systems, TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; where a VM goes is random, by the seed",
            complexity="O(log n) per VM as long as a probed host has room, else O(p)",
        ),
        "psdsf_fit": PolicyNote(
            paper="derived from Khamse-Ashari et al.: Per-Server Dominant-Share Fairness, 2016",
            guarantees="nothing that fits is left out; the pair of tenant and host of least "
            "virtual dominant share per weight is always next; the paper's properties hold for "
            "divisible tasks only",
            complexity="O(log n) per VM, and T p log p once",
        ),
        "tsf_fit": PolicyNote(
            paper="derived from TSF as in Khamse-Ashari et al.: Per-Server Dominant-Share "
            "Fairness, 2016; hosts: Wang, Li, Liang, INFOCOM 2014",
            guarantees="nothing that fits is left out; the tenant of least task share per weight "
            "is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n + log V) per VM, and T p once",
        ),
        "drf_pool": PolicyNote(
            paper="derived from Ghodsi et al.: Dominant Resource Fairness, NSDI 2011",
            guarantees="nothing that fits is left out; each demand is offered the whole VMs of "
            "its pooled DRF target first, as far as they fit on hosts; no sharing incentive or "
            "envy-freeness",
            complexity="O(n) steps for the targets, O(log n) per VM, and T p once",
        ),
        "slots": PolicyNote(
            paper="the slot scheduler in Wang, Li, Liang, INFOCOM 2014, section VI",
            guarantees="the tenant of fewest slots per weight is always next; what has slots has "
            "room; leaves room unused where whole slots do not fit, with that reason; no fairness: "
            "equal slots are not equal shares",
            complexity="O(log n) per VM, and T p once",
        ),
        "best_fit": PolicyNote(
            paper="none: the classical bin packing rule",
            guarantees="nothing that fits is left out; no fairness",
            complexity="O(p) per demand and host that it fills",
        ),
        "random_fit": PolicyNote(
            paper="none: the baseline that knows nothing of shapes",
            guarantees="nothing that fits is left out; no fairness; random, by the seed",
            complexity="O(p) per demand, O(1) per VM",
        ),
        "optimal": PolicyNote(
            paper="none: an integer program solved by HiGHS (Huangfu, Hall: Parallelizing the "
            "dual revised simplex method, Mathematical Programming Computation, 2018)",
            guarantees="no allocation gives out more of the first resource (objective vms: more "
            "VMs), unless the answer says that the search was cut, with a bound; nothing that "
            "fits is left out; no fairness",
            complexity="exponential in the worst case; one unknown for each class of hosts and "
            "kind of VM, at most 20,000, and 3,000 nodes",
        ),
    }
)
