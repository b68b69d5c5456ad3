"""Catalogue of mechanisms: ideal divisions, the yardsticks of policies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from placement.mechanisms.catalog_entry import MechanismEntry
from placement.mechanisms.hierarchies.collapsed_hierarchies import READERS as COLLAPSED_READERS
from placement.mechanisms.hierarchies.collapsed_hierarchies import CollapsedHierarchy
from placement.mechanisms.hierarchies.hdrf import Hdrf, NaiveHdrf
from placement.mechanisms.hierarchies.mch import Mch
from placement.mechanisms.hierarchies.staged_mch import MchStaged
from placement.mechanisms.max_min.drf import Drf
from placement.mechanisms.max_min.drfh import Drfh
from placement.mechanisms.max_min.per_server_drf import PerServerDrf
from placement.mechanisms.max_min.tsf import Tsf
from placement.mechanisms.model import DivisibleProblem, Division, Mechanism
from placement.mechanisms.psdsf.mechanism import READERS as PSDSF_READERS
from placement.mechanisms.psdsf.mechanism import Psdsf
from placement.model.tenant_tree import TenantTree
from placement.parameters import read_parameters

#: By name. A new mechanism needs one entry here; `make` checks the parameters that
#: `parameters` names, and raises `ParameterError`.
MECHANISMS: Final[Mapping[str, MechanismEntry]] = MappingProxyType(
    {
        "drf": MechanismEntry(
            summary="dominant resource fairness, all hosts as one pool",
            paper="Ghodsi et al., NSDI 2011; zero demands: Parkes et al., EC 2012",
            guarantees="sharing incentive, envy-free, Pareto optimal, strategyproof: for one pool",
            complexity="O(n m^2 log n)",
            make=lambda _: Drf(),
        ),
        "per_server_drf": MechanismEntry(
            summary="dominant resource fairness on each host by itself, a yardstick",
            paper="Wang, Li, Liang, INFOCOM 2014, as the naive extension of DRF",
            guarantees="sharing incentive, envy-free; not Pareto optimal",
            complexity="O(k n m^2 log n)",
            make=lambda _: PerServerDrf(),
        ),
        "drfh": MechanismEntry(
            summary="equal global dominant shares over heterogeneous hosts, by linear programs",
            paper="Wang, Li, Liang, INFOCOM 2014",
            guarantees="envy-free, Pareto optimal, strategyproof, weak sharing incentive",
            complexity="linear programs of n k unknowns, k m + n rows; one, or a few per stop",
            make=lambda _: Drfh(),
        ),
        "psdsf": MechanismEntry(
            summary="equal virtual dominant shares on every host, by sweeps over the hosts",
            paper="Khamse-Ashari et al., PS-DSF, 2016",
            guarantees="envy-free on allowed hosts, sharing incentive, single-server DRF; "
            "neither unique nor Pareto optimal (parameter pareto adds that); hosts can work on "
            "their own (procedure=distributed, Algorithm II)",
            complexity="O(k (n log n + n m)) per sweep, tens to hundreds of sweeps",
            parameters=frozenset(PSDSF_READERS),
            make=lambda given: Psdsf(**read_parameters(PSDSF_READERS, given)),
        ),
        "tsf": MechanismEntry(
            summary="equal tasks relative to all hosts without constraints, by linear programs",
            paper="task share fairness as in Khamse-Ashari et al., PS-DSF, 2016",
            guarantees="Pareto optimal, sharing incentive without constraints",
            complexity="linear programs of n k unknowns, k m + n rows; one, or a few per stop",
            make=lambda _: Tsf(),
        ),
        "cdrf": MechanismEntry(
            summary="equal tasks relative to the allowed hosts alone, by linear programs",
            paper="constrained DRF with placement as in Khamse-Ashari et al., PS-DSF, 2016",
            guarantees="Pareto optimal, sharing incentive",
            complexity="linear programs of n k unknowns, k m + n rows; one, or a few per stop",
            make=lambda _: Tsf(everywhere=False),
        ),
        "cdrfh": MechanismEntry(
            summary="equal global dominant shares on allowed hosts, by linear programs",
            paper="C-DRFH as in Khamse-Ashari et al., PS-DSF, 2016",
            guarantees="Pareto optimal; no sharing incentive",
            complexity="linear programs of n k unknowns, k m + n rows; one, or a few per stop",
            make=lambda _: Drfh("cdrfh"),
        ),
        "hdrf": MechanismEntry(
            summary="a tree of tenants: the next whole task goes down to the least share",
            paper="Bhattacharya et al.: Hierarchical Scheduling for Diverse Datacenter "
            "Workloads, SoCC 2013",
            guarantees="hierarchical share guarantee, up to a task; no tenant starves",
            complexity="O(depth m log q) per task",
            make=lambda _: Hdrf(),
            reads_tree=True,
        ),
        "naive_hdrf": MechanismEntry(
            summary="as hdrf, without rescaling: a yardstick",
            paper="the naive extension of DRF in Bhattacharya et al., SoCC 2013",
            guarantees="nothing that fits is left out; jobs of a group can starve",
            complexity="O(depth m log q) per task",
            make=lambda _: NaiveHdrf(),
            reads_tree=True,
        ),
        "mch": MechanismEntry(
            summary="a tree of tenants made flat once by weights, then drf over its leaves",
            paper="Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs, "
            "IEEE Communications Letters, 2019",
            guarantees="Pareto optimal in the pool; the tree's shares of the resource that is "
            "used up first; no hierarchical share guarantee for the others",
            complexity="O(q m) for the weights, then one drf",
            make=lambda _: Mch(),
            reads_tree=True,
        ),
        "mch_staged": MechanismEntry(
            summary="as mch, with new weights whenever a resource is used up or a job ends",
            paper="derived from the paper of mch",
            guarantees="Pareto optimal in the pool; hierarchical share guarantee where no job "
            "that stopped holds any of what others still compete for",
            complexity="O(q m) per stage, at most q + m stages",
            make=lambda _: MchStaged(),
            reads_tree=True,
        ),
        "collapsed": MechanismEntry(
            summary="a tree of tenants made flat by the paths of one resource's leaves",
            paper="C-CH and M-CH, the yardsticks in the paper of mch; our reading of them",
            guarantees="Pareto optimal in the pool; no hierarchical share guarantee",
            complexity="O(q m) for the weights, then one drf",
            make=lambda given: CollapsedHierarchy(**read_parameters(COLLAPSED_READERS, given)),
            parameters=frozenset(COLLAPSED_READERS),
            reads_tree=True,
        ),
    }
)

__all__ = [
    "MECHANISMS",
    "DivisibleProblem",
    "Division",
    "Mechanism",
    "MechanismEntry",
    "TenantTree",
]
