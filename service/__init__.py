"""Shared by all processes: settings, logs, messages, health and metrics.

A name's module is imported at its first use, so reading the version needs no database.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from service.health import Check, Readiness, database_check
    from service.listener import HttpListener, ListenerError, listening
    from service.metrics import ProcessMetrics

__all__ = [
    "Check",
    "HttpListener",
    "ListenerError",
    "ProcessMetrics",
    "Readiness",
    "database_check",
    "listening",
]
_MODULES: Final = MappingProxyType(
    {
        "Check": "health",
        "HttpListener": "listener",
        "ListenerError": "listener",
        "ProcessMetrics": "metrics",
        "Readiness": "health",
        "database_check": "health",
        "listening": "listener",
    }
)


def __getattr__(name: str) -> Any:
    """Import the module of a public name of this package when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'service' has no attribute {name!r}")
    return getattr(import_module(f"service.{_MODULES[name]}"), name)
