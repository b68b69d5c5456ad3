"""Look up policies and mechanisms by name, built in or from plugins."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from placement.catalog import plugins
from placement.catalog.guard import PluginCode, guarded_maker
from placement.catalog.policies import POLICIES, CatalogEntry
from placement.constraints import policy_with_rules
from placement.errors import ParameterError, PluginError, UnknownPolicyError, WrongKindError
from placement.mechanisms import MECHANISMS
from placement.mechanisms.catalog_entry import MechanismEntry
from placement.mechanisms.model import Mechanism
from placement.model.snapshot import Policy

#: What an entry point of each group must name.
_EXPECTED: Final[Mapping[str, type]] = MappingProxyType(
    {plugins.POLICY_GROUP: CatalogEntry, plugins.MECHANISM_GROUP: MechanismEntry}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogListing:
    """One policy or mechanism of the catalogue, as commands list it."""

    name: str
    kind: str  #: "policy" or "mechanism"
    summary: str
    paper: str
    guarantees: str
    complexity: str
    parameters: tuple[str, ...]
    origin: str | None  #: the distribution that it comes with; None: ours


def entry_by_name(name: str) -> CatalogEntry | MechanismEntry:
    """Return the catalogue's entry of a policy or mechanism; a plugin's module is imported now.

    Raises
    ------
    UnknownPolicyError
        Listing the names that are near.
    PluginError
        If another distribution claims a built-in name, or if its object cannot be used.
    """
    claims = plugins.installed_entry_points().get(name, ())
    ours = POLICIES.get(name) or MECHANISMS.get(name)
    if ours is not None:
        if claims:
            shadow = plugins.describe_origin(claims[0])
            raise PluginError(name, f"{shadow} takes the name of a built-in; uninstall it")
        return ours
    if not claims:
        known = (*POLICIES, *MECHANISMS, *plugins.installed_entry_points())
        near = tuple(difflib.get_close_matches(name[:64], known, n=3))
        raise UnknownPolicyError(name, near, known)
    loaded = plugins.load_entry_point(name, claims, _EXPECTED)
    package = claims[0].module.partition(".")[0]
    theirs = PluginCode(name=name, origin=plugins.describe_origin(claims[0]), package=package)
    if isinstance(loaded, MechanismEntry):
        return dataclasses.replace(loaded, make=guarded_maker(loaded.make, theirs))
    assert isinstance(loaded, CatalogEntry)  # noqa: S101 what `load_entry_point` promises
    return dataclasses.replace(loaded, make=guarded_maker(loaded.make, theirs))


def catalog_listings() -> tuple[tuple[CatalogListing, ...], tuple[PluginError, ...]]:
    """Return the whole catalogue, sorted by name, and the errors of plugins that do not load."""
    names = sorted({*POLICIES, *MECHANISMS, *plugins.installed_entry_points()})
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
        claims = (
            () if name in POLICIES or name in MECHANISMS else plugins.installed_entry_points()[name]
        )
        rows.append(
            _catalog_listing(name, entry, plugins.describe_origin(claims[0]) if claims else None)
        )
    return tuple(rows), tuple(broken)


def _catalog_listing(
    name: str, entry: CatalogEntry | MechanismEntry, origin: str | None
) -> CatalogListing:
    """Return the description of a policy or mechanism for lists of the catalogue."""
    return CatalogListing(
        name=name,
        kind="mechanism" if isinstance(entry, MechanismEntry) else "policy",
        summary=entry.summary,
        paper=entry.paper,
        guarantees=entry.guarantees,
        complexity=entry.complexity,
        parameters=tuple(sorted(entry.parameters)),
        origin=origin,
    )


def policy_by_name(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Make the policy called ``name`` with these parameters.

    A policy that does not read trees of tenants gets weights in place of a snapshot's tree; see
    `placement.constraints.tree_weights.snapshot_without_tree`. Every policy keeps the constraints
    and allowances of a snapshot; see `placement.constraints.constrained_policy` and
    `placement.constraints.allowances_policy`.

    Parameters
    ----------
    parameters : mapping
        Values that replace the defaults. One set of parameters may serve
        several policies: a parameter that only another policy reads is ignored.

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
    return policy_with_rules(
        entry.make(_own_parameters(entry, parameters)), reads_tree=entry.reads_tree
    )


def mechanism_by_name(name: str, parameters: Mapping[str, Any]) -> Mechanism:
    """Make the mechanism called ``name`` with these parameters; see `policy_by_name`."""
    entry = entry_by_name(name)
    if not isinstance(entry, MechanismEntry):
        raise WrongKindError(name, "policy", "mechanism")
    return entry.make(_own_parameters(entry, parameters))


def known_parameters(entry: CatalogEntry | MechanismEntry) -> frozenset[str]:
    """Return the parameters allowed in a file for ``entry``: its own, and all built-in ones."""
    return entry.parameters.union(
        *(each.parameters for each in POLICIES.values()),
        *(each.parameters for each in MECHANISMS.values()),
    )


def _own_parameters(
    entry: CatalogEntry | MechanismEntry, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return those of the given parameters that the policy or mechanism reads."""
    known = known_parameters(entry)
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ParameterError(
                parameter, value, f"no parameter of that name; known: {', '.join(sorted(known))}"
            )
    return {key: parameters[key] for key in parameters if key in entry.parameters}
