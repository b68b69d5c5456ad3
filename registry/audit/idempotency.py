"""Idempotency keys outside the transactions that claim them."""

from __future__ import annotations

import time
from typing import Final

from registry.db.engine import Database, retry_on_rollback
from registry.db.idempotency_keys import check_unused, delete_expired_keys
from registry.records.journal import IdempotencyKey

#: Period at which a process deletes expired keys.
FORGET_EVERY_S: Final = 60.0


class Idempotency:
    """Checks idempotency keys, and deletes expired ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forgot_at = float("-inf")  #: on this process's monotonic clock

    def check_unused(self, key: IdempotencyKey) -> None:
        """Check an idempotency key without claiming it; it raises the errors of `claim_key`."""
        with self._database.read_statement() as connection:
            check_unused(connection, key)

    def delete_expired(self) -> None:
        """Delete expired idempotency keys unless this process did so recently."""
        if self.is_deletion_due():
            self._forgot_at = time.monotonic()
            self._delete_expired()

    def is_deletion_due(self) -> bool:
        """Return whether a deletion of expired idempotency keys is due."""
        return time.monotonic() - self._forgot_at >= FORGET_EVERY_S

    @retry_on_rollback
    def _delete_expired(self) -> None:
        with self._database.write() as connection:
            delete_expired_keys(connection)
