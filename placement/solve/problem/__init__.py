"""The problem file of `fuga solve`: JSON text, validated problem, snapshot."""

from placement.solve.problem.amount_range import FAR_APART, AmountExtent, widest_extent
from placement.solve.problem.divisible import DividedProblem, to_divisible, unsupported_field_place
from placement.solve.problem.faults import ProblemFault, ProblemFileError
from placement.solve.problem.model import DemandEntry, HostEntry, Problem, TenantEntry
from placement.solve.problem.parameters import mechanism_parameters, policy_parameters
from placement.solve.problem.reader import MAX_SEED, read_problem
from placement.solve.problem.strict_json import MAX_BYTES
from placement.solve.problem.whole_vms import WholeVmProblem, to_whole_vms

__all__ = [
    "FAR_APART",
    "MAX_BYTES",
    "MAX_SEED",
    "AmountExtent",
    "DemandEntry",
    "DividedProblem",
    "HostEntry",
    "Problem",
    "ProblemFault",
    "ProblemFileError",
    "TenantEntry",
    "WholeVmProblem",
    "mechanism_parameters",
    "policy_parameters",
    "read_problem",
    "to_divisible",
    "to_whole_vms",
    "unsupported_field_place",
    "widest_extent",
]
