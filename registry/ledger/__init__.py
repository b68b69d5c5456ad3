"""What becomes of VMs and their assignments, and what is freed when one ends."""

from registry.ledger.power import MAX_TIMEOUT_S, SHUTDOWN_TIMEOUT_S

__all__ = ["MAX_TIMEOUT_S", "SHUTDOWN_TIMEOUT_S"]
