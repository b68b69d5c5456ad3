"""Statements that a database works on while this process prepares the next ones.

A large commit is as much work here (rows, arrays, JSON) as there. One thread hands over
the statements of a transaction, in their order and one at a time, while another makes
what comes next; nobody else uses the connection meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sqlalchemy import Connection

from registry.ground.bulk import Ready
from registry.ground.engine import has_one_writer

#: Takes a statement, to be run after all that was taken before.
Later = Callable[[Ready], None]


@contextmanager
def behind(connection: Connection) -> Iterator[Later]:
    """Give what takes statements; at the end of the block all of them are done.

    The first that fails is raised there, and those after it are left out. SQLite works in
    this process, so there is nothing to wait for: what it is given is done at once.
    """
    if has_one_writer(connection):
        yield lambda ready: ready()
        return
    handed: list[Future[None]] = []

    def in_turn(ready: Ready) -> None:
        if not any(each.done() and each.exception() for each in handed):
            ready()

    with ThreadPoolExecutor(1, thread_name_prefix="behind") as thread:
        yield lambda ready: handed.append(thread.submit(in_turn, ready))
    for each in handed:
        each.result()
