"""Hosts of a simulation and their events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HostEventKind(StrEnum):
    """A kind of event of a simulated host."""

    JOIN = "join"  #: it is there from now on
    DRAIN = "drain"  #: it takes no more VMs; those that run stay
    FAIL = "fail"  #: its VMs are lost and wait again; it stays in the pool
    RETURN = "return"  #: it takes VMs again
    LEAVE = "leave"  #: it is gone for good; its VMs wait again


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """An event of one simulated host."""

    at_s: float
    host: str
    what: HostEventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SimHost:
    """A simulated host, with the traits by which requests distinguish hosts."""

    name: str
    labels: tuple[str, ...] = ()
    accepts: bool = True

    @property
    def id(self) -> str:
        """The host's name, which is also its id in a simulation."""
        return self.name
