"""Entries of all built-in policies: maker, paper, guarantees and complexity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from placement.catalog_entry import Entry
from placement.constraints import policy_with_patience
from placement.constraints.starving_requests import READERS as PATIENCE_READERS
from placement.constraints.starving_requests import StarvationPatience
from placement.fuga.parameters import MAX_PLAYERS, FugaParameters
from placement.fuga.parameters import READERS as FUGA_READERS
from placement.fuga.policy import Fuga
from placement.model.snapshot import Policy
from placement.parameters import Reader, fraction_reader, read_parameters
from placement.policies.best_fit import best_fit
from placement.policies.best_fit_drfh import best_fit_drfh
from placement.policies.best_fit_hdrf import BestFitHdrf
from placement.policies.drf_pool import DrfPool
from placement.policies.first_fit import first_fit
from placement.policies.first_fit_drfh import first_fit_drfh
from placement.policies.optimal.policy import READERS as OPTIMAL_READERS
from placement.policies.optimal.policy import Optimal
from placement.policies.policy_loops import ProgressiveFillingPolicy, RequestOrderPolicy
from placement.policies.psdsf_fit import psdsf_fit
from placement.policies.random_fit import random_fit
from placement.policies.slots import READERS as SLOTS_READERS
from placement.policies.slots import Slots
from placement.policies.tsf_fit import tsf_fit
from placement.policies.two_choices_drfh import two_choices_drfh


@dataclass(frozen=True, slots=True)
class CatalogEntry(Entry[Policy]):
    """A policy of the catalogue."""


_OVERLOAD: Final[Mapping[str, Reader]] = {"overload": fraction_reader}


def unfair_entry(
    summary: str,
    make: Callable[..., Policy],
    readers: Mapping[str, Reader] = _OVERLOAD,
    **more: Any,
) -> CatalogEntry:
    """Return the catalogue entry of a policy without fairness; ``readers`` check its parameters."""
    return CatalogEntry(
        summary, frozenset(readers), lambda given: make(**read_parameters(readers, given)), **more
    )


def fair_entry(
    summary: str,
    make: Callable[..., Policy],
    readers: Mapping[str, Reader] = _OVERLOAD,
    **more: Any,
) -> CatalogEntry:
    """Return the catalogue entry of a fair policy; it reserves hosts for starving requests."""

    def make_fair(given: Mapping[str, Any]) -> Policy:
        """Make the policy of its parameters, and let it reserve hosts for starving requests."""
        policy = make(
            **read_parameters(readers, {name: given[name] for name in given if name in readers})
        )
        return policy_with_patience(policy, StarvationPatience.of(given))

    return CatalogEntry(summary, frozenset(readers) | PATIENCE_READERS.keys(), make_fair, **more)


#: By name. A new policy needs one entry here.
POLICIES: Final[Mapping[str, CatalogEntry]] = MappingProxyType(
    {
        "fuga": fair_entry(
            "game between hosts with fair quotas, the rest by Best-Fit DRFH",
            lambda **given: Fuga(FugaParameters(**given)),
            FUGA_READERS,
            paper="Xu, Yu: A Game Theory Approach to Fair and Efficient Resource Allocation "
            "in Cloud Computing, Mathematical Problems in Engineering, 2014",
            guarantees="subgame-perfect equilibrium where the game is small (by default of at most "
            f"{MAX_PLAYERS} hosts and {FugaParameters().subgames:,} subgames: subgames), else a "
            "Nash equilibrium once its sweeps end; with quotas each tenant is offered its fair "
            "target first; with the fallback nothing that fits is left out; no sharing incentive "
            "or envy-freeness",
            complexity="exact: at most η^p subgames; at scale about V T η + p η T and one step per "
            "VM",
        ),
        "best_fit_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the host of best shape",
            partial(ProgressiveFillingPolicy, best_fit_drfh),
            paper="Wang, Li, Liang: Dominant Resource Fairness in Cloud Computing Systems with "
            "Heterogeneous Servers, INFOCOM 2014; TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n + V) per VM",
        ),
        "best_fit_hdrf": fair_entry(
            "one VM at a time down the tree of tenants, on the host of best shape",
            BestFitHdrf,
            paper="order: Bhattacharya et al.: Hierarchical Scheduling for Diverse Datacenter "
            "Workloads, SoCC 2013; hosts: Wang, Li, Liang, INFOCOM 2014",
            guarantees="nothing that fits is left out; down the tree the least share per weight "
            "is always next; the shares that groups are entitled to hold for one pool only",
            complexity="O(depth log n + log V) per VM",
            reads_tree=True,
        ),
        "first_fit": unfair_entry(
            "requests in order, each VM on the first host where it fits; not fair",
            partial(RequestOrderPolicy, first_fit),
            paper="none: the classical baseline",
            guarantees="nothing that fits is left out; no fairness",
            complexity="O(p) per demand",
        ),
        "first_fit_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the first host where it fits",
            partial(ProgressiveFillingPolicy, first_fit_drfh),
            paper="Wang, Li, Liang: Dominant Resource Fairness in Cloud Computing Systems with "
            "Heterogeneous Servers, INFOCOM 2014; TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n) per VM, and T p once",
        ),
        "two_choices_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the better of two random hosts",
            partial(ProgressiveFillingPolicy, two_choices_drfh),
            paper="Wang, Li, Liang: Multi-Resource Fair Allocation in Heterogeneous Cloud "
            "Computing Systems, TPDS 2015",
            guarantees="nothing that fits is left out; the tenant of least weighted dominant "
            "share is always next; where a VM goes is random, by the seed",
            complexity="O(log n) per VM as long as a probed host has room, else O(p)",
        ),
        "psdsf_fit": fair_entry(
            "one VM at a time to the tenant and host of least virtual dominant share",
            partial(ProgressiveFillingPolicy, psdsf_fit),
            paper="derived from Khamse-Ashari et al.: Per-Server Dominant-Share Fairness, 2016",
            guarantees="nothing that fits is left out; the pair of tenant and host of least "
            "virtual dominant share per weight is always next; the paper's properties hold for "
            "divisible tasks only",
            complexity="O(log n) per VM, and T p log p once",
        ),
        "tsf_fit": fair_entry(
            "one VM at a time to the tenant of least task share, on the host of best shape",
            partial(ProgressiveFillingPolicy, tsf_fit),
            paper="derived from TSF as in Khamse-Ashari et al.: Per-Server Dominant-Share "
            "Fairness, 2016; hosts: Wang, Li, Liang, INFOCOM 2014",
            guarantees="nothing that fits is left out; the tenant of least task share per weight "
            "is always next; the paper's properties hold for divisible tasks only",
            complexity="O(log n + log V) per VM, and T p once",
        ),
        "drf_pool": fair_entry(
            "fair targets as if all hosts were one, packed first-fit, the rest in turn",
            DrfPool,
            paper="derived from Ghodsi et al.: Dominant Resource Fairness, NSDI 2011",
            guarantees="nothing that fits is left out; each demand is offered the whole VMs of "
            "its pooled DRF target first, as far as they fit on hosts; no sharing incentive or "
            "envy-freeness",
            complexity="O(n) steps for the targets, O(log n) per VM, and T p once",
        ),
        "slots": unfair_entry(
            "hosts cut into equal slots, the tenant of fewest slots is next; not fair in resources",
            Slots,
            SLOTS_READERS,
            paper="the slot scheduler in Wang, Li, Liang, INFOCOM 2014, section VI",
            guarantees="the tenant of fewest slots per weight is always next; what has slots has "
            "room; leaves room unused where whole slots do not fit, with that reason; no fairness: "
            "equal slots are not equal shares",
            complexity="O(log n) per VM, and T p once",
        ),
        "best_fit": unfair_entry(
            "requests in order, each VM on the host that is left with the least; not fair",
            partial(RequestOrderPolicy, best_fit),
            paper="none: the classical bin packing rule",
            guarantees="nothing that fits is left out; no fairness",
            complexity="O(p) per demand and host that it fills",
        ),
        "random_fit": unfair_entry(
            "requests in order, each VM on a fitting host at random; not fair",
            partial(RequestOrderPolicy, random_fit),
            paper="none: the baseline that knows nothing of shapes",
            guarantees="nothing that fits is left out; no fairness; random, by the seed",
            complexity="O(p) per demand, O(1) per VM",
        ),
        "optimal": unfair_entry(
            "as much of the first resource, or as many VMs, as any allocation could; not fair",
            Optimal,
            OPTIMAL_READERS,
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
