"""What happened and who asked: events, the audit, and answers kept for repeated calls."""

from registry.ground.audited import AuditedCall
from registry.journal.audit import REFUSED
from registry.records.journal import AuditEntry, Event, IdempotencyKey, StoredAnswer

__all__ = ["REFUSED", "AuditEntry", "AuditedCall", "Event", "IdempotencyKey", "StoredAnswer"]
