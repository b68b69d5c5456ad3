"""What is known of idempotency keys outside the transactions that claim them."""

from __future__ import annotations

import time
from typing import Final

from sqlalchemy import delete

from registry.ground.clock import db_now
from registry.ground.engine import Database, retried
from registry.ground.once import AGAIN, KEPT, check_unused
from registry.ground.schema import idempotency_keys as keys
from registry.records.journal import IdempotencyKey

#: How often a process deletes what is older than `KEPT`, which counts no more in any case.
FORGET_EVERY_S: Final = 60.0


class Idempotency:
    """Reads keys, and forgets the old ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forgot_at = float("-inf")  #: on this process's monotonic clock

    def check_unused(self, key: IdempotencyKey) -> None:
        """Raise what a call with this key would come to if it was used.

        Raises
        ------
        AnsweredBeforeError
            If a call with it did its work: with the record of that.
        IdempotencyConflictError
            If it was used for another body.
        """
        with self._database.look() as connection:
            row = connection.execute(AGAIN, {"scope": key.scope, "key": key.key}).one_or_none()
        if row is not None:
            check_unused(key, row)

    def forget_old(self) -> None:
        """Delete keys that count no more, if this process did not do so lately."""
        if self.may_forget():
            self._forgot_at = time.monotonic()
            self._delete_old()

    def may_forget(self) -> bool:
        """Tell whether it is time to, without asking the database."""
        return time.monotonic() - self._forgot_at >= FORGET_EVERY_S

    @retried
    def _delete_old(self) -> None:
        with self._database.write() as connection:
            now = db_now(connection)
            connection.execute(delete(keys).where(keys.c.first_used_at < now - KEPT))
