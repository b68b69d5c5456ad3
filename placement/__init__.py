"""Every placement mechanism as a pure function on arrays, and the check of feasibility."""

from placement.catalog.names import entry_by_name, mechanism_by_name, policy_by_name
from placement.catalog.policies import POLICIES, CatalogEntry
from placement.catalog.zone_policies import FALLBACK, fallback_parameters
from placement.errors import (
    GangTooLargeError,
    InfeasibleAllocationError,
    ParameterError,
    PlacementError,
    PluginError,
    PluginFailedError,
    QuantityTooLargeError,
    ShapeMismatchError,
    SolverError,
    UnknownPolicyError,
    WrongKindError,
)
from placement.fairness.levels import is_poorer
from placement.fairness.shares import (
    dominant_shares,
    fair_distance,
    fractions_of_pool,
    shares_after,
)
from placement.mechanisms import (
    MECHANISMS,
    DivisibleProblem,
    Division,
    Mechanism,
    MechanismEntry,
    TenantTree,
)
from placement.mechanisms.check import check_division
from placement.metrics.bound import allocation_bound
from placement.metrics.fair_holdings import shares_in_tree, target_holdings, target_shares
from placement.metrics.shortage import Shortage, shortages
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget
from placement.model.check import check_allocation
from placement.model.decision import decide, set_aside_unplaceable
from placement.model.snapshot import Allocation, LeftOut, Policy, QuotaHeadroom, Reason, Snapshot

__all__ = [
    "FALLBACK",
    "MECHANISMS",
    "POLICIES",
    "Allocation",
    "BoolArray",
    "Budget",
    "CatalogEntry",
    "DivisibleProblem",
    "Division",
    "FloatArray",
    "GangTooLargeError",
    "InfeasibleAllocationError",
    "IntArray",
    "LeftOut",
    "Mechanism",
    "MechanismEntry",
    "ParameterError",
    "PlacementError",
    "PluginError",
    "PluginFailedError",
    "Policy",
    "QuantityTooLargeError",
    "QuotaHeadroom",
    "Reason",
    "ShapeMismatchError",
    "Shortage",
    "Snapshot",
    "SolverError",
    "TenantTree",
    "UnknownPolicyError",
    "WrongKindError",
    "allocation_bound",
    "check_allocation",
    "check_division",
    "decide",
    "dominant_shares",
    "entry_by_name",
    "fair_distance",
    "fallback_parameters",
    "fractions_of_pool",
    "is_poorer",
    "mechanism_by_name",
    "policy_by_name",
    "set_aside_unplaceable",
    "shares_after",
    "shares_in_tree",
    "shortages",
    "target_holdings",
    "target_shares",
]
