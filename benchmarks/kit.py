"""What benchmarks share: options, what they need of a machine, clocks, a register center."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from registry import upgrade
from tests.servers.postgres import DURABLE, PostgresServer, postgres_server

T = TypeVar("T")


def parser(document: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return a parser of options with their defaults, each ``default`` or ``(default, help)``.

    A default has the option's type: ``False`` is a switch, a list is given with commas between.
    """
    made = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, given in options.items():
        default, purpose = given if isinstance(given, tuple) else (given, None)
        option = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(option, action="store_true", help=purpose)
        else:
            made.add_argument(option, type=_reader(default), default=default, help=purpose)
    return made


def _reader(default: Any) -> Callable[[str], Any]:
    if isinstance(default, list):
        kind = type(default[0]) if default else str
        return lambda text: [kind(each) for each in text.split(",")]
    return str if default is None else type(default)


def unless(*reasons: Callable[[], str | None]) -> Callable[[Callable[..., T]], Callable[..., Any]]:
    """Return a decorator: the function prints the first reason why it cannot run, and returns."""

    def decorated(main: Callable[..., T]) -> Callable[..., T | None]:
        @functools.wraps(main)
        def checked(*given: Any) -> T | None:
            for reason in filter(None, (each() for each in reasons)):
                print(f"not here: {reason}")
                return None
            return main(*given)

        return checked

    return decorated


def timed(
    action: Callable[[], T], *, repeats: int = 1, clock: Callable[[], float] = time.process_time
) -> tuple[T, float]:
    """Return the last result, and the shortest time of the repeats in seconds."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        result = action()
        seconds.append(clock() - started)
    return result, min(seconds)


by_clock: Final = functools.partial(timed, clock=time.perf_counter)


@contextmanager
def a_register(options: str = DURABLE) -> Iterator[tuple[PostgresServer, str]]:
    """Yield a PostgreSQL server with the guide's settings, and the URL of an upgraded database."""
    with postgres_server(options, on_disk=True) as server, server.database() as url:
        upgrade(url)
        yield server, url
