"""The problem file of `fuga solve`: JSON text, validated problem, snapshot."""

from placement.problem.divisible import DividedProblem, place_of, to_divisible
from placement.problem.faults import Fault, ProblemError
from placement.problem.jsontext import MOST_BYTES
from placement.problem.model import DemandEntry, HostEntry, Problem, TenantEntry
from placement.problem.parameters import mechanism_parameters, policy_parameters
from placement.problem.reading import MOST_SEED, read_problem
from placement.problem.spread import FAR_APART, Spread, widest_spread
from placement.problem.whole_vms import WholeVmProblem, to_whole_vms

__all__ = [
    "FAR_APART",
    "MOST_BYTES",
    "MOST_SEED",
    "DemandEntry",
    "DividedProblem",
    "Fault",
    "HostEntry",
    "Problem",
    "ProblemError",
    "Spread",
    "TenantEntry",
    "WholeVmProblem",
    "mechanism_parameters",
    "place_of",
    "policy_parameters",
    "read_problem",
    "to_divisible",
    "to_whole_vms",
    "widest_spread",
]
