"""Statements of a transaction, executed in a thread while the caller compiles the next ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sqlalchemy import Connection

#: A compiled statement with its parameters.
PreparedStatement = Callable[[], None]
#: Submits a statement, which runs after all earlier ones.
SubmitStatement = Callable[[PreparedStatement], None]


@contextmanager
def background_executor(connection: Connection) -> Iterator[SubmitStatement]:
    """Yield a function that submits statements; all of them are executed at the block's end.

    One thread executes the statements of a transaction in their order, while the caller compiles
    the next ones. No other thread may use the connection in the block. The first error is raised
    at the block's end, and later statements are skipped. SQLite works in this process, so there
    each statement is executed at once.
    """
    if connection.dialect.name == "sqlite":
        yield lambda ready: ready()
        return
    handed: list[Future[None]] = []

    def in_turn(ready: PreparedStatement) -> None:
        if not any(each.done() and each.exception() for each in handed):
            ready()

    with ThreadPoolExecutor(1, thread_name_prefix="behind") as thread:
        yield lambda ready: handed.append(thread.submit(in_turn, ready))
    for future in handed:
        future.result()
