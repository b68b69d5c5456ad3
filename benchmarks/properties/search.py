"""Look for violations, case by case, and make those that are found small."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.properties import whole_vms
from benchmarks.properties.cases import FAMILIES, Family, PropertyCase, draw, in_groups, with_a_lie
from benchmarks.properties.checks import PROPERTIES, VIOLATION
from placement.catalog.policies import POLICIES

#: Measured, in order; ``psdsf+pareto`` is psdsf with its parameter pareto.
MECHANISMS: Final = (
    "drf",
    "per_server_drf",
    "drfh",
    "cdrfh",
    "tsf",
    "cdrf",
    "psdsf",
    "psdsf+pareto",
)
#: Those that divide one pool among groups of tenants.
TREE_MECHANISMS: Final = ("mch", "mch_staged", "collapsed")
#: Properties checked of them; the others are of hosts.
TREE_PROPERTIES: Final = (
    "hierarchical_shares",
    "pareto",
    "strategyproofness",
    "population_monotonicity",
)
#: Those of whole-VM policies end so, or are of them alone.
POLICY_PROPERTIES: Final = tuple(
    name for name in PROPERTIES if name.endswith("_1") or name == "no_waste"
)
HOST_PROPERTIES: Final = tuple(
    name for name in PROPERTIES if name not in ("hierarchical_shares", *POLICY_PROPERTIES)
)
#: Whole VMs: the policies, and hdrf, whose tasks are whole too.
WHOLE: Final = (*POLICIES, *whole_vms.POOLED)
TREE_FAMILIES: Final = ("plain", "zeros", "finite")
#: What they are where everybody may use every host.
_LIKE: Final = {"cdrfh": "drfh", "cdrf": "tsf"}
_UNKNOWN: Final = {
    ("drf", "constraints"),
    ("drfh", "constraints"),
    ("hdrf", "constraints"),
    ("per_server_drf", "finite"),
}
#: Factors of the number of cases: there are many ways to lie.
_MORE: Final = {"strategyproofness": 2, "strategyproofness_1": 2}
#: Trials of smaller cases for each violation.
_MAX_TRIALS: Final = 600
#: An example for people shows at least that much, if the case that was found does.
_CLEAR: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The result of a search for one property, mechanism and family of cases."""

    prop: str
    mechanism: str
    family: Family
    cases: int  #: looked at, up to the first violation
    example: PropertyCase | None  #: that violates, made small
    by: float = 0.0


def why_not_checked(prop: str, mechanism: str, family: Family) -> str | None:
    """Return why a mechanism is not searched on such cases, or None if it is."""
    if prop == "weak_sharing_incentive" and mechanism != "drfh":
        return "not checked"  # the cut that is tried is made for it
    if mechanism in _LIKE and family != "constraints":
        return f"as `{_LIKE[mechanism]}`"
    # A pool knows no hosts, DRFH no constraints, and per-server DRF no counts.
    if (mechanism, family) in _UNKNOWN:
        return "not checked"
    return None


def build_case(
    prop: str, family: Family, seed: int, number: int, *, grouped: bool = False
) -> PropertyCase:
    """Return a case of a family; the same for all mechanisms of hosts, or of trees."""
    place = (list(PROPERTIES).index(prop), FAMILIES.index(family))
    rng = np.random.default_rng((seed, *place, number))
    case = draw(
        rng,
        family,
        one_host=grouped or prop.startswith("single_server_drf"),
        bottleneck=prop == "bottleneck_fairness",
    )
    if grouped:
        case = in_groups(case, rng)
    return with_a_lie(case, rng, family) if prop.startswith("strategyproofness") else case


def search(
    prop: str, mechanism: str, family: Family, *, seed: int, cases: int, shrink: bool = True
) -> Cell | None:
    """Search up to ``cases`` cases, twice as many for lies; return None if not searched."""
    if why_not_checked(prop, mechanism, family):
        return None
    cases *= _MORE.get(prop, 1)
    check = PROPERTIES[prop].check
    for number in range(cases):
        case = build_case(prop, family, seed, number, grouped=mechanism in TREE_MECHANISMS)
        by = check(mechanism, case) or 0.0
        if by > VIOLATION:
            small, by = made_small(prop, mechanism, case, by)
            return Cell(
                prop=prop,
                mechanism=mechanism,
                family=family,
                cases=number + 1,
                example=small,
                by=by,
            )
    return Cell(prop=prop, mechanism=mechanism, family=family, cases=cases, example=None)


def made_small(
    prop: str, mechanism: str, case: PropertyCase, by: float
) -> tuple[PropertyCase, float]:
    """Return a smaller case that still violates the property, and the size of the violation."""
    check, least = PROPERTIES[prop].check, min(_CLEAR, by)
    trials, shrinks = 0, True
    while shrinks:
        shrinks = False
        for smaller in case.smaller():
            if smaller.size() >= case.size():
                continue
            trials += 1
            if trials > _MAX_TRIALS:
                return case, by
            found = check(mechanism, smaller) or 0.0
            if found >= least:
                case, by, shrinks = replace(smaller), found, True
                break
    return case, by
