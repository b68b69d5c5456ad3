"""Properties count the examples that contain what they speak of.

A property of exchanges holds trivially where nothing is exchanged. `contains` in the body
of a test says whether an example has its subject; the test fails where too few have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

#: The least part of a property's examples that must contain its subject.
LEAST: Final = 0.3


@dataclass(slots=True)
class _Counts:
    examples: int = 0
    with_subject: int = 0


_counts: ContextVar[_Counts] = ContextVar("counts")


def contains(subject: object) -> None:
    """Count an example, and whether it contains the subject of its property."""
    counts = _counts.get()
    counts.examples += 1
    counts.with_subject += bool(subject)


def about(subject: str, *, least: float = LEAST) -> Callable[[Callable[..., None]], Any]:
    """Fail a property of which too few examples contain the subject.

    Put it outermost, above ``given``; the test calls `contains` once in each example.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: object, **kwargs: object) -> None:
            counts = _Counts()
            token = _counts.set(counts)
            try:
                test(*args, **kwargs)
            finally:
                _counts.reset(token)
            found = f"{counts.with_subject} of {counts.examples} examples contain {subject}"
            assert counts.with_subject >= least * counts.examples > 0, found

        return run

    return decorate
