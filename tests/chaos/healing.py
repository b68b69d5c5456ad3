"""When a site is well again: waited for by what can be observed, with plenty of time."""

from __future__ import annotations

import httpx

from tests.chaos.site import Site
from tests.running import eventually

HEAL_S = 300.0

_UNDER_WAY = (
    "SELECT a.id FROM assignments a JOIN vms v ON v.id = a.vm_id"
    " WHERE a.state NOT IN ('active', 'released')"
    " OR (a.state = 'active' AND v.desired = 'running' AND v.observed <> 'running')"
)


def under_way(site: Site) -> set[str]:
    """Assignments that are between two states that may last."""
    return {str(key) for (key,) in site.sql(_UNDER_WAY)}


def serves(site: Site) -> bool:
    """Both APIs answer, somebody leads, every host is up."""
    return site.leader() is not None and site.all_up() and all(map(_ready, site.api_urls))


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=20).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until_healed(site: Site) -> None:
    """Until all serves, and what was under way when the fault was over has come to an end."""
    eventually(lambda: serves(site), within_s=HEAL_S)
    left = under_way(site)

    def done() -> bool:
        left.intersection_update(under_way(site))
        return not left

    eventually(done, within_s=HEAL_S)


def wait_until_settled(site: Site) -> None:
    """Until nothing is under way at all, and whatever waits says why."""
    eventually(lambda: serves(site), within_s=HEAL_S)
    undecided = (
        "SELECT count(*) FROM requests WHERE state IN ('pending', 'partly_placed')"
        " AND waiting IS NULL"
    )
    eventually(lambda: not under_way(site) and site.sql(undecided) == [(0,)], within_s=HEAL_S)


def wait_until_empty(site: Site) -> None:
    """Until nothing is held, and nothing is left to be removed."""
    held = "SELECT (SELECT sum(committed) FROM inventories) + (SELECT count(*) FROM leftovers)"
    eventually(lambda: site.sql(held) == [(0,)], within_s=HEAL_S)
