"""Reservations in the control centre: each is decided soon after its request.

Only the leader decides, one reservation after another, so that each is judged with those
accepted before it. If the deciding process is killed or the leader ends, the reservation stays
pending and the next leader decides it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from controller.queries.reservation_decision import (
    TIME_S,
    build_reservation_query,
    to_reservation_decision,
)
from controller.rounds.policy_process import PolicyProcess
from registry import Registry, RegistryError
from registry.reservations import Reservation, ReservationDecision
from registry.rounds import Lease

log = structlog.get_logger()
ACTOR: Final = "control"
#: Time to turn rows into arrays, in addition to the time for samples.
_MORE_S: Final = 60.0
#: Attempts whose process was killed or failed, after which the reservation is refused.
_TRIES: Final = 3


class ReservationDecider:
    """Decides pending reservations at an interval, while this control centre leads."""

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        process: PolicyProcess,
        *,
        interval_s: float,
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._process = process
        self._interval_s = interval_s
        self._failed: dict[UUID, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Decide pending reservations until stopped."""
        while not stop.wait(self._interval_s):
            try:
                self.decide_pending(stop)
            except RegistryError as error:
                log.error("reservations_not_decided", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("reservations_not_decided")
        self._process.close()

    def decide_pending(self, stop: threading.Event | None = None) -> int:
        """Decide pending reservations; return how many were decided."""
        decided = 0
        for each in self._registry.reservations.list_pending():
            lease = self._lease()
            if lease is None or (stop is not None and stop.is_set()):
                break
            decision = self._decide_reservation(each)
            if decision is not None:
                found = self._registry.reservations.decide(each.id, decision, lease, actor=ACTOR)
                self._failed.pop(each.id, None)
                decided += 1
                log.info("reservation_decided", reservation=str(each.id), state=found.state)
        return decided

    def _decide_reservation(self, reservation: Reservation) -> ReservationDecision | None:
        """Return the decision; None if the process failed and another attempt follows."""
        view = self._registry.cluster_queries.forecast_inputs()
        standing = self._registry.reservations.list_accepted()
        try:
            judged = self._process.judge_reservation(
                build_reservation_query(view, reservation, standing), deadline_s=TIME_S + _MORE_S
            )
        except Exception as error:  # one that fails does not keep others from their decision
            tries = self._failed[reservation.id] = self._failed.get(reservation.id, 0) + 1
            log.error("reservation_not_judged", reservation=str(reservation.id), error=str(error))
            if tries < _TRIES:
                return None
            message = "it could not be judged; operators: see the control centre's log"
            return ReservationDecision(reason="failed", message=message)
        return to_reservation_decision(reservation, judged)
