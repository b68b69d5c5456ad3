"""What a move does on both hosts. In the child process only."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hypervisor import wire
from hypervisor.child import cold_moves, filters, live_moves, move_checks, moved_domains
from hypervisor.child.move_ends import Ends
from hypervisor.move_model import MoveSpec

Tell = Callable[[Mapping[str, Any]], object]


class MoveHands:
    """The operations of a move's child."""

    def __init__(self, ends: Ends, stop: threading.Event, tell: Tell) -> None:
        self._ends = ends
        self._stop = stop
        self._tell = tell
        self._operations: Mapping[str, Callable[..., Any]] = {
            "check": self._check,
            "live": self._live,
            "cold": self._cold,
            "withdraw": self._withdraw,
        }

    def perform(self, op: str, args: Mapping[str, Any]) -> Any:
        """Do one.

        Raises HostUnreachableError, OperationFailedError or MoveRefusedError alone.
        """
        with self._ends.translating(f"{op}_move"):
            self._ends.open()
            return self._operations[op](**args)

    def _check(self, spec: Mapping[str, Any]) -> None:
        move_checks.check(self._ends, self._spec(spec))

    def _live(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        done = live_moves.move(
            self._ends,
            self._spec(spec),
            self._stop,
            lambda progress: self._tell(dataclasses.asdict(progress)),
        )
        return dataclasses.asdict(done)

    def _withdraw(self, spec: Mapping[str, Any]) -> bool:
        return moved_domains.withdraw(self._ends, wire.move_from(spec))

    def _cold(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        done = cold_moves.move(
            self._ends,
            self._spec(spec),
            self._stop,
            lambda progress: self._tell(dataclasses.asdict(progress)),
        )
        return dataclasses.asdict(done)

    def _spec(self, fields: Mapping[str, Any]) -> MoveSpec:
        spec = wire.move_from(fields)
        if spec.guard is None:
            return spec
        destination, source = self._ends.destination.moving, (spec.network_kind, spec.network)
        guard = filters.with_own_addresses(destination, spec.guard, [source])
        return dataclasses.replace(spec, guard=guard)
