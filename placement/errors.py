"""Errors of placement: bad input. A lack of room is a `LeftOut`, no error."""

from __future__ import annotations


class PlacementError(Exception):
    """Base of all errors of this package."""


class QuantityTooLargeError(PlacementError):
    """Quantities add up to more than 64-bit integers hold."""

    def __init__(self, resource: str, total: float, limit: int) -> None:
        super().__init__(f"hosts or tenants add up to {total:.3g} {resource}, at most {limit:.3g}")
        self.resource = resource
        self.total = total
        self.limit = limit


class ShapeMismatchError(PlacementError):
    """An array's shape does not fit the axes of the others."""

    def __init__(self, name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        super().__init__(f"{name} has shape {found}, expected {expected}")
        self.name = name
        self.found = found
        self.expected = expected


class GangTooLargeError(PlacementError):
    """A request must get more VMs at once (``min_count``) than it has VMs to place."""

    def __init__(self, request: int, min_count: int, count: int) -> None:
        super().__init__(
            f"request {request} wants at least {min_count} VMs at once, but {count} in all"
        )
        self.request = request
        self.min_count = min_count
        self.count = count


class InfeasibleAllocationError(PlacementError):
    """An allocation breaks a rule of its snapshot."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"infeasible allocation: {rule}")
        self.rule = rule


class ParameterError(PlacementError):
    """A parameter of a policy is unknown or outside what is allowed."""

    def __init__(self, name: str, found: object, allowed: str) -> None:
        super().__init__(f"parameter {name}: found {found!r}, allowed is {allowed}")
        self.name = name
        self.found = found
        self.allowed = allowed


class ConstraintError(PlacementError):
    """A constraint refers to something that its snapshot does not have."""

    def __init__(self, field: str, found: int, allowed: str) -> None:
        super().__init__(f"constraints: {field} is {found}, allowed is {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


class RunningError(PlacementError):
    """The description of the running VMs is inconsistent."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"running VMs: {field} is {found}, allowed is {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


class InfeasiblePlanError(PlacementError):
    """A plan of moves breaks a rule at some moment."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"infeasible plan: {rule}")
        self.rule = rule


class UnknownPolicyError(PlacementError):
    """No policy or mechanism of that name is in the catalogue."""

    def __init__(self, name: str, near: tuple[str, ...], known: tuple[str, ...]) -> None:
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown policy {name!r}; {hint}")
        self.name = name
        self.near = near


class WrongKindError(PlacementError):
    """The catalogue entry of that name is of the other kind."""

    def __init__(self, name: str, found: str, wanted: str) -> None:
        super().__init__(f"{name} is a {found}, not a {wanted}")
        self.name = name
        self.found = found
        self.wanted = wanted


class PluginError(PlacementError):
    """A policy or mechanism of another distribution cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name!r}: {reason}")
        self.name = name
        self.reason = reason


class PluginFailedError(PlacementError):
    """A policy or mechanism of another distribution raised, or returned an invalid result."""

    def __init__(self, name: str, origin: str, doing: str, cause: str) -> None:
        super().__init__(f"{name!r}: {origin} failed in {doing}: {cause}")
        self.name = name
        self.origin = origin


class ProgramTooLargeError(PlacementError):
    """A linear program has more unknowns than its time allows."""

    def __init__(self, what: str, found: int, limit: int) -> None:
        super().__init__(f"{what}: the linear program has {found} unknowns, at most {limit}")
        self.what = what
        self.found = found
        self.limit = limit


class SolverError(PlacementError):
    """A linear program did not end in an optimum."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: solver status {status}, {message}")
        self.what = what
        self.status = status
