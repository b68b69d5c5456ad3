"""Idempotency keys outside the transactions that claim them."""

from __future__ import annotations

import time
from typing import Final

from registry.db.engine import Database, retry_on_clash
from registry.db.idempotency_keys import check_unused, delete_old
from registry.records.journal import IdempotencyKey

#: How often a process deletes the keys that count no more.
FORGET_EVERY_S: Final = 60.0


class Idempotency:
    """Reads keys, and forgets the old ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forgot_at = float("-inf")  #: on this process's monotonic clock

    def check_unused(self, key: IdempotencyKey) -> None:
        """Look up a key without claiming it; see `claim_key` for what it raises."""
        with self._database.read_statement() as connection:
            check_unused(connection, key)

    def forget_old(self) -> None:
        """Delete keys that count no more, if this process did not do so lately."""
        if self.may_forget():
            self._forgot_at = time.monotonic()
            self._delete_old()

    def may_forget(self) -> bool:
        """Return whether it is time to delete, by this process's clock."""
        return time.monotonic() - self._forgot_at >= FORGET_EVERY_S

    @retry_on_clash
    def _delete_old(self) -> None:
        with self._database.write() as connection:
            delete_old(connection)
