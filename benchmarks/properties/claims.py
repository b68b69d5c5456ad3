"""What papers claim, of their own setting: demands above zero, tasks without end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from placement.catalog.policies import POLICIES

YES, NO, OPEN = "yes", "no", "not stated"

#: By mechanism, then property. What is absent is not stated.
CLAIMS: Final[Mapping[str, Mapping[str, str]]] = {
    "drf": dict.fromkeys(
        (
            "sharing_incentive",
            "envy_freeness",
            "pareto",
            "strategyproofness",
            "bottleneck_fairness",
            "single_server_drf",
            "population_monotonicity",
        ),
        YES,
    ),
    "per_server_drf": {"pareto": NO},
    "drfh": {
        "sharing_incentive": NO,
        "weak_sharing_incentive": YES,
        "envy_freeness": YES,
        "pareto": YES,
        "strategyproofness": YES,
        "bottleneck_fairness": YES,
        "single_server_drf": YES,
        "population_monotonicity": YES,
    },
    "cdrfh": {"sharing_incentive": NO},
    "tsf": {
        "sharing_incentive": YES,
        "envy_freeness": YES,
        "pareto": YES,
        "strategyproofness": YES,
    },
    "cdrf": {},
    "psdsf": {
        "sharing_incentive": YES,
        "envy_freeness": YES,
        "pareto": "as DRF",
        "strategyproofness": "as DRF",
        "bottleneck_fairness": YES,
        "single_server_drf": YES,
    },
    "psdsf+pareto": {},
    "mch": {},
    "mch_staged": {"hierarchical_shares": "in part"},
    "collapsed": {"hierarchical_shares": NO},
    **{name: {"no_waste": YES} for name in (*POLICIES, "hdrf")},
    "slots": {"no_waste": NO},
}

SOURCES: Final = (
    "Claims: `drf` Ghodsi et al., NSDI 2011; `drfh` and `per_server_drf` Wang, Li, Liang, INFOCOM "
    "2014 and TPDS 2015; `tsf` Wang, Li, Li, Liang, Li, *Multi-resource fair sharing for "
    "datacenter jobs with placement constraints*, SC 2016; `psdsf` and what is said of `cdrfh` "
    'Khamse-Ashari et al., 2016. "As DRF": the paper\'s abstract promises *all desirable sharing '
    "properties that DRF is able to offer*. `cdrf` and the step `pareto` of `psdsf` have no "
    "claims of their own."
)


def claim(mechanism: str, prop: str) -> str:
    """Return the claim of a paper in one or two words."""
    return CLAIMS[mechanism].get(prop, OPEN)
