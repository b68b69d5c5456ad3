"""Policies and mechanisms of other distributions, found by Python entry points.

Finding reads the metadata of what is installed and imports nothing; the module
behind an entry point is imported when its name is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from placement.errors import PluginError

POLICY_GROUP: Final = "fuga.policies"
MECHANISM_GROUP: Final = "fuga.mechanisms"


@cache
def installed_entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of all plugins by name; read once in a process."""
    found: dict[str, list[EntryPoint]] = {}
    for group in (POLICY_GROUP, MECHANISM_GROUP):
        for each in entry_points(group=group):
            found.setdefault(each.name, []).append(each)
    return MappingProxyType(
        {name: tuple(sorted(each, key=describe_origin)) for name, each in sorted(found.items())}
    )


def describe_origin(point: EntryPoint) -> str:
    """Describe a plugin's entry point: its distribution, and the object that it names."""
    distribution = "an unknown distribution" if point.dist is None else point.dist.name
    return f"{distribution} ({point.value})"


def load_entry_point(
    name: str, points: tuple[EntryPoint, ...], expected: Mapping[str, type]
) -> object:
    """Import the policy or mechanism that a plugin's entry point names, and check its type.

    Parameters
    ----------
    points : tuple of EntryPoint
        All entry points of the name.
    expected : mapping
        The type of object that each group must name.

    Raises
    ------
    PluginError
        If the name has several entry points, if the import fails for any reason,
        or if the imported object has another type.
    """
    if len(points) > 1:
        claims = " and ".join(map(describe_origin, points))
        raise PluginError(name, f"claimed by {claims}; uninstall all but one")
    point = points[0]
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # other people's module: anything may happen
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(name, f"{describe_origin(point)} cannot be loaded: {cause}") from error
    wanted = expected[point.group]
    if not isinstance(loaded, wanted):
        kind = type(loaded).__name__
        raise PluginError(
            name,
            f"{describe_origin(point)} must name a {wanted.__name__} for {point.group}, "
            f"found {kind}",
        )
    return loaded
