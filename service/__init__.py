"""Shared by all processes: settings, logs, messages, health and metrics."""

from service.beating import beating
from service.health import Check, Readiness, database_check
from service.listener import Listener, ListenerError, listening
from service.metrics import ProcessMetrics

__all__ = [
    "Check",
    "Listener",
    "ListenerError",
    "ProcessMetrics",
    "Readiness",
    "beating",
    "database_check",
    "listening",
]
