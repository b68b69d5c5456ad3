"""Leases with epochs, which expire by the database's clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, case, select, update

from registry.db.bulk import insert_if_absent
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.locks import roll_back_when_idle
from registry.db.schema import leases
from registry.errors import LeaseLostError, StaleEpochError
from registry.records.liveness import Lease

#: the control centre's: its epoch is named by every commit of a round
CONTROL_LEASE = "control"
#: How long at most a lease's row stays locked by a process that is stopped in between,
#: beyond the lease itself. Many times what one that runs takes between two statements.
IDLE_S: Final = 10.0


#: Another process may have been given longer leases, at most by this factor.
_LENGTHS: Final = 2


class Leases(Repository):
    """Gives a named lease to one holder at a time, such as that of the control centre."""

    @retry_on_rollback
    def acquire(self, name: str, holder: str, length_s: float) -> Lease | None:
        """Acquire a lease and return it; None while another holder's is live.

        The epoch rises when the holder changes or the lease had expired, so no two terms of a
        lease share an epoch.
        """
        with self._database.write() as connection:
            roll_back_when_idle(connection, IDLE_S)
            first = insert_if_absent(
                connection, leases, name=name, holder=holder, epoch=1, expires_at=db_now(connection)
            )
            row = connection.execute(
                select(leases).where(leases.c.name == name).with_for_update()
            ).one()
            # Read again under the lock: another process may have changed the row just before.
            now = db_now(connection)
            until = now + timedelta(seconds=length_s)
            live = row.expires_at > now
            if live and row.holder != holder:
                latest = now + timedelta(seconds=_LENGTHS * length_s)
                if row.expires_at > latest:
                    # It was taken before the clock stepped back. Its holder, if it still lives,
                    # renews it before it ends.
                    shortened = update(leases).where(leases.c.name == name)
                    connection.execute(shortened.values(expires_at=latest))
                return None
            epoch = row.epoch if live or first else row.epoch + 1
            since = row.held_since if live else now
            connection.execute(
                update(leases)
                .where(leases.c.name == name)
                .values(holder=holder, epoch=epoch, expires_at=until, held_since=since)
            )
        return Lease(name=name, holder=holder, epoch=epoch, expires_at=until, held_since=since)

    @retry_on_rollback
    def renew(self, lease: Lease, length_s: float) -> Lease:
        """Extend a lease that is still live, or raise `LeaseLostError`."""
        with self._database.write() as connection:
            _lock_lease(connection, lease.name)
            now = db_now(connection)
            until = now + timedelta(seconds=length_s)
            changed = connection.execute(
                update(leases)
                .where(
                    leases.c.name == lease.name,
                    leases.c.holder == lease.holder,
                    leases.c.epoch == lease.epoch,
                    leases.c.expires_at > now,
                )
                # It began before now, whatever the clock was then.
                .values(
                    expires_at=until,
                    held_since=case((leases.c.held_since > now, now), else_=leases.c.held_since),
                )
            ).rowcount
            if not changed:
                raise LeaseLostError(lease.name, lease.holder, lease.epoch)
        return replace(lease, expires_at=until)

    @retry_on_rollback
    def release(self, lease: Lease) -> None:
        """Release a lease early; nothing happens if it is lost already."""
        with self._database.write() as connection:
            _lock_lease(connection, lease.name)
            now = db_now(connection)
            connection.execute(
                update(leases)
                .where(
                    leases.c.name == lease.name,
                    leases.c.holder == lease.holder,
                    leases.c.epoch == lease.epoch,
                    leases.c.expires_at > now,
                )
                .values(expires_at=now)
            )


def _lock_lease(connection: Connection, name: str) -> None:
    """Lock the row of a lease; the server rolls an idle transaction back soon."""
    roll_back_when_idle(connection, IDLE_S)
    connection.execute(select(leases.c.name).where(leases.c.name == name).with_for_update())


def check_epoch(
    connection: Connection, name: str, holder: str, epoch: int, *, until_commit: bool = False
) -> None:
    """Raise `StaleEpochError` unless that holder has the control centre's lease now, in that epoch.

    With ``until_commit`` the row is locked, so no process takes over the lease before this
    transaction ends. If this process stops halfway, the server rolls the transaction back soon
    after the lease expires.
    """
    query = select(leases).where(leases.c.name == name)
    if until_commit:
        query = query.with_for_update(read=True)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise StaleEpochError(holder, epoch, "it was never held")
    if row.holder != holder or row.epoch != epoch:
        raise StaleEpochError(holder, epoch, f"epoch {row.epoch} is {row.holder}'s")
    left_s = (row.expires_at - db_now(connection)).total_seconds()
    if left_s <= 0:
        raise StaleEpochError(holder, epoch, f"it expired at {row.expires_at.isoformat()}")
    if until_commit:
        roll_back_when_idle(connection, max(left_s, IDLE_S))
