"""Every policy and mechanism, by name: ours, and those of other distributions."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from placement.catalog import plugins
from placement.catalog.guard import Theirs, guarded_maker
from placement.catalog.notes import POLICY_NOTES, PolicyNote
from placement.errors import (
    ParameterError,
    PluginError,
    UnknownPolicyError,
    WrongKindError,
)
from placement.filling.overload import read_overload
from placement.fuga.parameters import PARAMETERS as FUGA_PARAMETERS
from placement.fuga.parameters import FugaParameters
from placement.fuga.policy import Fuga
from placement.mechanisms import MECHANISMS
from placement.mechanisms.entry import MechanismEntry
from placement.mechanisms.model import Mechanism
from placement.policies.best_fit import BestFit
from placement.policies.best_fit_drfh import BestFitDrfh
from placement.policies.best_fit_hdrf import BestFitHdrf
from placement.policies.drf_pool import DrfPool
from placement.policies.first_fit import FirstFit
from placement.policies.first_fit_drfh import FirstFitDrfh
from placement.policies.optimal.policy import Optimal
from placement.policies.psdsf_fit import PsdsfFit
from placement.policies.random_fit import RandomFit
from placement.policies.slots import Slots
from placement.policies.tsf_fit import TsfFit
from placement.policies.two_choices_drfh import TwoChoicesDrfh
from placement.round.model import Policy
from placement.rules import with_patience, with_rules
from placement.rules.patience import PARAMETERS as PATIENCE_PARAMETERS
from placement.rules.patience import Patience


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A policy of the catalogue: what it does, what it reads, how it is made."""

    summary: str
    parameters: frozenset[str]
    make: Callable[[Mapping[str, Any]], Policy]
    note: PolicyNote | None = None  #: ours stand in `POLICY_NOTES`
    reads_tree: bool = False  #: does it look at the tree of tenants itself?


def fair_entry(
    summary: str,
    parameters: frozenset[str],
    make: Callable[[Mapping[str, Any]], Policy],
    *,
    reads_tree: bool = False,
) -> CatalogEntry:
    """Return the entry of a policy that claims fairness: it holds hosts back for who starves."""

    def made(given: Mapping[str, Any]) -> Policy:
        policy = make({key: given[key] for key in given if key in parameters})
        return with_patience(policy, Patience.of(given))

    known = parameters | PATIENCE_PARAMETERS
    return CatalogEntry(summary, known, made, reads_tree=reads_tree)


_OVERLOAD: Final = frozenset({"overload"})


def _overload(given: Mapping[str, Any]) -> float:
    return read_overload("overload", given.get("overload", 1.0))


POLICIES: Final[Mapping[str, CatalogEntry]] = MappingProxyType(
    {
        "fuga": fair_entry(
            "game between hosts with fair quotas, the rest by Best-Fit DRFH",
            FUGA_PARAMETERS,
            lambda given: Fuga(FugaParameters.of(given)),
        ),
        "best_fit_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the host of best shape",
            _OVERLOAD,
            lambda given: BestFitDrfh(overload=_overload(given)),
        ),
        "best_fit_hdrf": fair_entry(
            "one VM at a time down the tree of tenants, on the host of best shape",
            _OVERLOAD,
            lambda given: BestFitHdrf(overload=_overload(given)),
            reads_tree=True,
        ),
        "first_fit": CatalogEntry(
            "requests in order, each VM on the first host where it fits; not fair",
            _OVERLOAD,
            lambda given: FirstFit(overload=_overload(given)),
        ),
        "first_fit_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the first host where it fits",
            _OVERLOAD,
            lambda given: FirstFitDrfh(overload=_overload(given)),
        ),
        "two_choices_drfh": fair_entry(
            "one VM at a time to the tenant of least share, on the better of two random hosts",
            _OVERLOAD,
            lambda given: TwoChoicesDrfh(overload=_overload(given)),
        ),
        "psdsf_fit": fair_entry(
            "one VM at a time to the tenant and host of least virtual dominant share",
            _OVERLOAD,
            lambda given: PsdsfFit(overload=_overload(given)),
        ),
        "tsf_fit": fair_entry(
            "one VM at a time to the tenant of least task share, on the host of best shape",
            _OVERLOAD,
            lambda given: TsfFit(overload=_overload(given)),
        ),
        "drf_pool": fair_entry(
            "fair targets as if all hosts were one, packed first-fit, the rest in turn",
            _OVERLOAD,
            lambda given: DrfPool(overload=_overload(given)),
        ),
        "slots": CatalogEntry(
            "hosts cut into equal slots, the tenant of fewest slots is next; not fair in resources",
            frozenset({"slots"}) | _OVERLOAD,
            Slots.of,
        ),
        "best_fit": CatalogEntry(
            "requests in order, each VM on the host that is left with the least; not fair",
            _OVERLOAD,
            lambda given: BestFit(overload=_overload(given)),
        ),
        "random_fit": CatalogEntry(
            "requests in order, each VM on a fitting host at random; not fair",
            _OVERLOAD,
            lambda given: RandomFit(overload=_overload(given)),
        ),
        "optimal": CatalogEntry(
            "as much of the first resource, or as many VMs, as any allocation could; not fair",
            frozenset({"objective"}) | _OVERLOAD,
            Optimal.of,
        ),
    }
)


#: What an entry point of each group must name.
_EXPECTED: Final[Mapping[str, type]] = MappingProxyType(
    {plugins.POLICY_GROUP: CatalogEntry, plugins.MECHANISM_GROUP: MechanismEntry}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A line of the catalogue, for people."""

    name: str
    kind: str  #: "policy" or "mechanism"
    summary: str
    paper: str
    guarantees: str
    complexity: str
    parameters: tuple[str, ...]
    origin: str | None  #: the distribution that it comes with; None: ours


def entry_by_name(name: str) -> CatalogEntry | MechanismEntry:
    """Return what the catalogue has under ``name``; others' modules are imported now.

    Raises
    ------
    UnknownPolicyError
        Listing the names that are near.
    PluginError
        If another distribution claims the name of one of ours, or if what it
        brings cannot be used.
    """
    claims = plugins.installed().get(name, ())
    ours = POLICIES.get(name) or MECHANISMS.get(name)
    if ours is not None:
        if claims:
            shadow = plugins.origin(claims[0])
            raise PluginError(name, f"{shadow} takes the name of a built-in; uninstall it")
        return ours
    if not claims:
        known = (*POLICIES, *MECHANISMS, *plugins.installed())
        near = tuple(difflib.get_close_matches(name[:64], known, n=3))
        raise UnknownPolicyError(name, near, known)
    loaded = plugins.load(name, claims, _EXPECTED)
    package = claims[0].module.partition(".")[0]
    theirs = Theirs(name=name, origin=plugins.origin(claims[0]), package=package)
    if isinstance(loaded, MechanismEntry):
        return dataclasses.replace(loaded, make=guarded_maker(loaded.make, theirs))
    assert isinstance(loaded, CatalogEntry)  # noqa: S101 what `load` promises
    return dataclasses.replace(loaded, make=guarded_maker(loaded.make, theirs))


def listings() -> tuple[tuple[Listing, ...], tuple[PluginError, ...]]:
    """Return the whole catalogue in order of name, and what could not be loaded."""
    names = sorted({*POLICIES, *MECHANISMS, *plugins.installed()})
    rows, broken = [], []
    for name in names:
        try:
            entry = entry_by_name(name)
        except PluginError as error:
            broken.append(error)
            ours = POLICIES.get(name) or MECHANISMS.get(name)
            if ours is None:
                continue
            entry = ours
        claims = () if name in POLICIES or name in MECHANISMS else plugins.installed()[name]
        rows.append(_listing(name, entry, plugins.origin(claims[0]) if claims else None))
    return tuple(rows), tuple(broken)


def _listing(name: str, entry: CatalogEntry | MechanismEntry, origin: str | None) -> Listing:
    note: PolicyNote | MechanismEntry | None = (
        entry if isinstance(entry, MechanismEntry) else entry.note or POLICY_NOTES.get(name)
    )
    return Listing(
        name=name,
        kind=_kind(entry),
        summary=entry.summary,
        paper=note.paper if note else "not told",
        guarantees=note.guarantees if note else "not told",
        complexity=note.complexity if note else "not told",
        parameters=tuple(sorted(entry.parameters)),
        origin=origin,
    )


def _kind(entry: CatalogEntry | MechanismEntry) -> str:
    return "mechanism" if isinstance(entry, MechanismEntry) else "policy"


def policy_by_name(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Return the policy called ``name``.

    One that does not read trees of tenants itself is given the weights that
    stand for a snapshot's tree, see `placement.rules.in_tree.without_tree`. All keep
    the constraints and allowances of a snapshot, see `placement.rules.constrained` and
    `placement.rules.within_allowances`.

    Parameters
    ----------
    parameters : mapping
        What to change from the defaults. One set of parameters may serve
        several policies: what only another one reads is passed over.

    Raises
    ------
    UnknownPolicyError
        Listing the names that are near.
    WrongKindError
        If the name is that of a mechanism, which cannot place whole VMs.
    PluginError
        See `entry_by_name`.
    ParameterError
        For a parameter that nothing in the catalogue reads, or a value that is
        not allowed.
    """
    entry = entry_by_name(name)
    if isinstance(entry, MechanismEntry):
        raise WrongKindError(name, "mechanism", "policy")
    return with_rules(entry.make(_read_by(entry, parameters)), reads_tree=entry.reads_tree)


def mechanism_by_name(name: str, parameters: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism called ``name``; see `policy_by_name`."""
    entry = entry_by_name(name)
    if not isinstance(entry, MechanismEntry):
        raise WrongKindError(name, "policy", "mechanism")
    return entry.make(_read_by(entry, parameters))


def known_parameters(entry: CatalogEntry | MechanismEntry) -> frozenset[str]:
    """Return the parameters that a file for ``entry`` may give: its own and all of ours."""
    return entry.parameters.union(
        *(each.parameters for each in POLICIES.values()),
        *(each.parameters for each in MECHANISMS.values()),
    )


def _read_by(entry: CatalogEntry | MechanismEntry, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that ``entry`` reads."""
    known = known_parameters(entry)
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ParameterError(
                parameter, value, f"no parameter of that name; known: {', '.join(sorted(known))}"
            )
    return {key: parameters[key] for key in parameters if key in entry.parameters}
