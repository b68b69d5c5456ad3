"""The ledger: VMs, their assignments, and the capacity that assignments hold."""

from registry.ledger.power import MAX_TIMEOUT_S, SHUTDOWN_TIMEOUT_S

__all__ = ["MAX_TIMEOUT_S", "SHUTDOWN_TIMEOUT_S"]
