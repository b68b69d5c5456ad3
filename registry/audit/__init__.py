"""Events, the audit log, and the answers stored under idempotency keys."""

from registry.audit.audit import REFUSED
from registry.db.audit_context import AuditedCall
from registry.db.once import Once, kept_record
from registry.records.journal import AuditEntry, Event, IdempotencyKey

__all__ = ["REFUSED", "AuditEntry", "AuditedCall", "Event", "IdempotencyKey", "Once", "kept_record"]
