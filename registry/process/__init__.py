"""What every process has besides its work: health, metrics, and a listener that tells both."""

from registry.process.health import Check, Readiness, database_check
from registry.process.listener import Listener, ListenerError, listening
from registry.process.metrics import ProcessMetrics

__all__ = [
    "Check",
    "Listener",
    "ListenerError",
    "ProcessMetrics",
    "Readiness",
    "database_check",
    "listening",
]
