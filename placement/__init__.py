"""Every placement mechanism as a pure function on arrays, and the check of feasibility."""

from placement.bound import allocation_bound
from placement.budget import Budget
from placement.catalog import (
    POLICIES,
    CatalogEntry,
    entry_by_name,
    mechanism_by_name,
    policy_by_name,
)
from placement.check import check_allocation
from placement.check_division import check_division
from placement.decision import FALLBACK, decide, fallback_parameters
from placement.distance import fair_distance, shares_in_tree, target_holdings, target_shares
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
from placement.mechanisms import (
    MECHANISMS,
    DivisibleProblem,
    Division,
    Mechanism,
    MechanismEntry,
    TenantTree,
)
from placement.model import (
    Allocation,
    Allowance,
    BoolArray,
    FloatArray,
    IntArray,
    LeftOut,
    Policy,
    Reason,
    Snapshot,
)
from placement.policy_notes import PolicyNote
from placement.set_aside import set_aside
from placement.shares import (
    SHARE_TOLERANCE,
    dominant_shares,
    fractions_of_pool,
    held_after,
    shares_after,
)
from placement.shortage import Shortage, shortages
from placement.within_allowances import WithinAllowances

__all__ = [
    "FALLBACK",
    "MECHANISMS",
    "POLICIES",
    "SHARE_TOLERANCE",
    "Allocation",
    "Allowance",
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
    "PolicyNote",
    "QuantityTooLargeError",
    "Reason",
    "ShapeMismatchError",
    "Shortage",
    "Snapshot",
    "SolverError",
    "TenantTree",
    "UnknownPolicyError",
    "WithinAllowances",
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
    "held_after",
    "mechanism_by_name",
    "policy_by_name",
    "set_aside",
    "shares_after",
    "shares_in_tree",
    "shortages",
    "target_holdings",
    "target_shares",
]
