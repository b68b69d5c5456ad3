"""What the doctor says of hosts."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.doctor.hosts import host_exclusion_reason

SINCE = "2026-01-01T00:00:00Z"
HUNG = "storage pool 'default' does not answer since 2026-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"health": "down", "last_error": "no route"}, "down: no route"),
        ({"health": "down"}, "down: no error recorded; check that the monitor runs"),
        ({"health": "down", "admin": "maintenance"}, None),
        ({"pool_silent_since": SINCE, "last_error": HUNG}, f"{HUNG}: it is up but gets no VMs"),
    ],
)
def test_a_host_that_gets_no_vms_is_named_with_the_reason(
    changes: dict[str, Any], told: str | None
) -> None:
    host = {"name": "h1", "admin": "active", "health": "up", "last_error": None, **changes}

    assert host_exclusion_reason(host) == told
