"""Reservations: requested, decided by the control centre, in force for a time, drawn on."""

from registry.lifecycle import OPEN_RESERVATIONS, ReservationState
from registry.records.cluster import ReservationView, ReservedView
from registry.records.reservations import RefusedFor, Reservation, ReservationDecision
from registry.reservations.create import MAX_AHEAD_S, MAX_LENGTH_S

__all__ = [
    "MAX_AHEAD_S",
    "MAX_LENGTH_S",
    "OPEN_RESERVATIONS",
    "RefusedFor",
    "Reservation",
    "ReservationDecision",
    "ReservationState",
    "ReservationView",
    "ReservedView",
]
