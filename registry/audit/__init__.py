"""Events, the audit log, and the answers stored under idempotency keys."""

from registry.audit.audit import REFUSED
from registry.db.audit_context import AuditedCall
from registry.db.idempotency_keys import IdempotentCall, parse_stored_record
from registry.records.journal import AuditEntry, Event, IdempotencyKey

__all__ = [
    "REFUSED",
    "AuditEntry",
    "AuditedCall",
    "Event",
    "IdempotencyKey",
    "IdempotentCall",
    "parse_stored_record",
]
