"""Shared database code: the schema, transactions, locks, time, ids, pages and row leases."""

from registry.db.checkpoints import checkpoint
from registry.db.ids import uuid7
from registry.db.masking import mask_line, mask_secrets
from registry.db.names import MAX_TTL_S, check_labels, check_single_values
from registry.db.pages import Page
from registry.db.private_files import private_folder
from registry.records.fields import FieldRole, field_roles, settable_fields

__all__ = [
    "MAX_TTL_S",
    "FieldRole",
    "Page",
    "check_labels",
    "check_single_values",
    "checkpoint",
    "field_roles",
    "mask_line",
    "mask_secrets",
    "private_folder",
    "settable_fields",
    "uuid7",
]
