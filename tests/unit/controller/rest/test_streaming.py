"""How calls that last end with the server."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rest.middleware.streams import end_stream, register_stream


@pytest.mark.parametrize("stops_first", [False, True])
def test_a_call_that_lasts_ends_whether_it_began_before_the_stop_or_after(
    stops_first: bool,
) -> None:
    scope: dict[str, Any] = {"state": {}}
    ended: list[bool] = []
    steps = [lambda: register_stream(scope, lambda: ended.append(True)), lambda: end_stream(scope)]

    for step in reversed(steps) if stops_first else steps:
        step()

    assert ended == [True]
