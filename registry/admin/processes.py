"""Heartbeats of processes, each with the trouble that the process has.

Only the age of a row counts, so a process that was killed, frozen or cut off becomes
late without any report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, select, update

from registry.db.bulk import insert_if_absent
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.schema import processes
from registry.records.liveness import ProcessHeartbeat, ProcessSettings

BEAT_S: Final = 5.0
#: Six heartbeats, so that a machine under load does not count as dead.
LATE_S: Final = 30.0
#: A process that is silent for longer is deleted, as its machine is gone.
_KEPT: Final = timedelta(days=1)


class Processes(Repository):
    """Stores the heartbeats and settings of processes."""

    @retry_on_rollback
    def register(
        self,
        kind: str,
        name: str,
        machine: str,
        pid: int,
        *,
        stamp_of: Callable[[int], str | None],
        release: str | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        """Add a starting process; delete processes of its kind that have ended on its machine.

        Parameters
        ----------
        stamp_of : Callable[[int], str | None]
            Returns a mark that distinguishes a process from earlier ones with the same id on
            this machine; None if no such process runs. A frozen process keeps its mark.
        release : str, optional
            Version and commit of its code.
        settings : Mapping[str, str | None], optional
            The settings in force as text, without secrets.
        """
        with self._database.write() as connection:
            now = db_now(connection)
            alike = (processes.c.kind == kind) & (processes.c.machine == machine)
            known = select(processes.c.name, processes.c.pid, processes.c.start_stamp).where(alike)
            ended = [
                row.name
                for row in connection.execute(known)
                if row.pid == pid
                or (found := stamp_of(row.pid)) is None
                or row.start_stamp not in {None, found}
            ]
            connection.execute(
                delete(processes).where(
                    ((processes.c.kind == kind) & processes.c.name.in_(ended))
                    | (processes.c.heartbeat_at < now - _KEPT)
                )
            )
            insert_if_absent(
                connection,
                processes,
                kind=kind,
                name=name,
                machine=machine,
                pid=pid,
                start_stamp=stamp_of(pid),
                release=release,
                settings=None if settings is None else dict(settings),
                started_at=now,
                heartbeat_at=now,
                trouble="it starts",
            )

    @retry_on_rollback
    def record_heartbeat(self, kind: str, name: str, trouble: str | None) -> bool:
        """Record a process's heartbeat and trouble; return False if it is not registered."""
        with self._database.write() as connection:
            changed = connection.execute(
                update(processes)
                .where(processes.c.kind == kind, processes.c.name == name)
                .values(heartbeat_at=db_now(connection), trouble=trouble)
            ).rowcount
            return bool(changed)

    @retry_on_rollback
    def unregister(self, kind: str, name: str) -> None:
        """Delete the record of a process that ends regularly."""
        with self._database.write() as connection:
            connection.execute(
                delete(processes).where(processes.c.kind == kind, processes.c.name == name)
            )

    @retry_on_rollback
    def settings(self) -> tuple[ProcessSettings, ...]:
        """Return the settings of processes that are not late, ordered by kind and name."""
        columns = (processes.c[name] for name in ProcessSettings.__dataclass_fields__)
        query = select(*columns).order_by(processes.c.kind, processes.c.name)
        with self._database.read() as connection:
            since = db_now(connection) - timedelta(seconds=LATE_S)
            query = query.where(
                processes.c.settings.is_not(None), processes.c.heartbeat_at >= since
            )
            return tuple(ProcessSettings(**row._mapping) for row in connection.execute(query))


def known_processes(connection: Connection) -> tuple[ProcessHeartbeat, ...]:
    """Return all registered processes, ordered by kind and name."""
    columns = (processes.c[name] for name in ProcessHeartbeat.__dataclass_fields__)
    query = select(*columns).order_by(processes.c.kind, processes.c.name)
    return tuple(ProcessHeartbeat(**row._mapping) for row in connection.execute(query))


def is_late(process: ProcessHeartbeat, now: datetime) -> bool:
    """Return whether a process has sent no heartbeat for too long."""
    return (now - process.heartbeat_at).total_seconds() > LATE_S
