"""Registration of streams: calls that last as long as their callers want.

Streams have their own limits, so they release their permit among concurrent calls. They are ended
when the server stops, which otherwise waits for each call under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import Scope

#: Keys of a call's state: the function that releases its permit, and the one that ends a stream.
RELEASE_PERMIT: Final = "release_permit"
END_STREAM: Final = "end_stream"
#: The server was stopped while the call was under way.
_STOPPED: Final = "stopped"


def release_permit(scope: Scope) -> None:
    """Release a call's permit among the concurrent calls, because it became a stream."""
    leave = scope.get("state", {}).get(RELEASE_PERMIT)
    if leave is not None:
        leave()


def register_stream(scope: Scope, end: Callable[[], None]) -> None:
    """Register the function that ends a stream; call it at once if the server is stopping."""
    state = scope.setdefault("state", {})
    state[END_STREAM] = end
    if state.get(_STOPPED):
        end()


def end_stream(scope: Scope) -> None:
    """End a call's stream, or any stream that it registers later."""
    state = scope["state"]
    state[_STOPPED] = True
    end = state.get(END_STREAM)
    if end is not None:
        end()
