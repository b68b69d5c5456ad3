"""What happened and who asked: events, the audit, and answers kept for repeated calls."""

from registry.ground.audited import AuditedCall
from registry.ground.once import Once, kept_record
from registry.journal.audit import REFUSED
from registry.records.journal import AuditEntry, Event, IdempotencyKey

__all__ = [
    "REFUSED",
    "AuditEntry",
    "AuditedCall",
    "Event",
    "IdempotencyKey",
    "Once",
    "kept_record",
]
