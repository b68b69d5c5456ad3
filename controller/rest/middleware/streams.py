"""Calls that last as long as their callers like: streams.

They have bounds of their own, so they leave the crowd; and they end when the server does,
which otherwise waits for each call under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import Scope

#: In the state of a call: how it leaves the crowd, and, of one that lasts, how it is ended.
RELEASE_PLACE: Final = "release_place"
END_STREAM: Final = "end_stream"
#: The server was stopped while the call was under way.
_STOPPED: Final = "stopped"


def release_place(scope: Scope) -> None:
    """Count a call no longer among those that are to end soon."""
    leave = scope.get("state", {}).get(RELEASE_PLACE)
    if leave is not None:
        leave()


def register_stream(scope: Scope, end: Callable[[], None]) -> None:
    """Note that a call lasts, and how the server ends it: at once if it stopped already."""
    state = scope.setdefault("state", {})
    state[END_STREAM] = end
    if state.get(_STOPPED):
        end()


def end_stream(scope: Scope) -> None:
    """End a call if it lasts, or as soon as it does."""
    state = scope["state"]
    state[_STOPPED] = True
    end = state.get(END_STREAM)
    if end is not None:
        end()
