"""Processes that die: between two statements, or once a commit has reached the database.

Nobody dies before a statement that only reads: a death before the next that writes, or before
the commit, leaves the same. SQLite has one writer, and every transaction of it is tried on
PostgreSQL: there only the deaths around a commit are its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.default import DefaultDialect

from registry import RegistryUnavailableError


class DeathError(RegistryUnavailableError):
    """Whoever speaks to a database is dead, or the database is away: the same for what is kept."""


class Death:
    """Comes at the nth point of a process, and lasts: the dead say nothing more."""

    def __init__(self) -> None:
        self._left: int | None = None
        self.commits = 0  #: that reached the database, ever

    @contextmanager
    def at(self, point: int) -> Iterator[None]:
        """Let everybody die there who speaks to a database, while this is open."""
        self._left = point
        try:
            yield
        finally:
            self._left = None

    def statement(self, connection: Connection, _: Any, statement: str, *__: Any) -> None:
        dead = self._left == 0
        writes = not statement.lstrip().upper().startswith("SELECT")
        if dead or (writes and connection.dialect.name == "postgresql"):
            self.step()

    def step(self) -> None:
        if self._left is None:
            return
        if self._left == 0:
            raise DeathError("dead")
        self._left -= 1


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Iterator[Death]:
    """Let processes die at each statement that writes, before each commit and after it."""
    found = Death()
    commit = DefaultDialect.do_commit

    def commit_and_die(dialect: Any, connection: Any) -> None:
        found.step()
        commit(dialect, connection)
        found.commits += 1
        found.step()

    monkeypatch.setattr(DefaultDialect, "do_commit", commit_and_die)
    event.listen(Engine, "before_cursor_execute", found.statement)
    yield found
    event.remove(Engine, "before_cursor_execute", found.statement)
