"""When a site is well again: waited for by what can be observed, with plenty of time.

On a busy machine a host may be fenced after the last fault, so each look switches on what is off.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx

from tests.chaos.site import Site
from tests.servers.running import TimedOutError, eventually

HEAL_S = 600.0

_UNDER_WAY = (
    "SELECT m.id::text, 'move', m.state, m.kind, m.reason, m.attempts, m.last_error FROM moves m"
    " WHERE m.ended_at IS NULL"
    " UNION ALL "
    "SELECT a.id::text, h.name, a.state, v.desired, v.observed, a.attempts, a.last_error"
    " FROM assignments a JOIN vms v ON v.id = a.vm_id JOIN hosts h ON h.id = a.host_id"
    " WHERE a.state NOT IN ('active', 'released')"
    " OR (a.state = 'active' AND v.desired = 'running' AND v.observed IN ('absent', 'lost'))"
    " OR (a.state = 'active' AND EXISTS (SELECT 1 FROM power_actions p WHERE p.vm_id = v.id))"
    " UNION ALL "
    # Its tenant may request the next change at once, and a guest that crashed releases no disk.
    "SELECT d.id || ' since ' || d.changed_at, 'volume', d.state, d.name, '', d.attempts,"
    " d.last_error FROM volumes d"
    " WHERE d.state NOT IN ('unplaced', 'available', 'attached', 'removed')"
)
#: What waits without a reason or is to end, and hosts that nobody looked at since a time.
_UNSETTLED = """
SELECT 'requests', string_agg(id::text, ' ') FROM requests
 WHERE state IN ('pending', 'partly_placed') AND waiting IS NULL
UNION ALL SELECT 'leftovers', string_agg(name, ' ') FROM leftovers
UNION ALL SELECT 'spot or borrowed VMs that end', string_agg(vm_id::text, ' ')
 FROM spot_preemptions
UNION ALL SELECT 'borrowed VMs without a place', string_agg(v.name, ' ') FROM vms v
 WHERE v.borrowed AND v.desired <> 'deleted' AND NOT EXISTS (SELECT 1 FROM assignments a
  WHERE a.vm_id = v.id AND a.state NOT IN ('released', 'arriving', 'leaving'))
UNION ALL SELECT 'unsigned rounds', string_agg(round::text, ' ') FROM round_hash_chain
 WHERE signature IS NULL
UNION ALL SELECT 'unsigned months', string_agg(month::text, ' ') FROM closed_usage
 WHERE signature IS NULL
UNION ALL SELECT 'reservations', string_agg(id::text || ' ' || state, ' ') FROM reservations
 WHERE state IN ('pending', 'accepted') OR (state = 'in_force' AND NOT EXISTS (
  -- Nothing ends for an hour after a step ahead, such as the return from a step back (ADR 0087).
  SELECT 1 FROM events WHERE kind = 'clock_stepped_ahead'
   AND at > clock_timestamp() - interval '1 hour'))
UNION ALL SELECT 'plans', string_agg(id::text || ' ' || state, ' ') FROM plans
 WHERE state IN ('pending', 'approved')
UNION ALL SELECT 'hosts', string_agg(h.name || ' ' || h.health, ' ')
 FROM hosts h JOIN host_reports r ON r.host_id = h.id
 WHERE h.admin <> 'retired'
 AND (h.health <> 'up' OR (r.report ->> 'started_at')::timestamptz <= %s)
"""


def under_way(site: Site) -> dict[str, str]:
    """Moves, assignments and volumes between two states that may last, and what is known."""
    return {str(row[0]): " ".join(map(str, row[1:])) for row in site.sql(_UNDER_WAY)}


def serves(site: Site) -> bool:
    """Both APIs answer, somebody leads, every host is up; who was fenced is switched on again."""
    site.switch_on_what_is_off()
    return site.leader() is not None and site.all_up() and all(map(_ready, site.api_urls))


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=20, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until_healed(site: Site) -> list[str]:
    """Until all serves, and what was under way when the fault was over has come to an end.

    Returns what did not heal in all that time.
    """
    if unwell := _wait_until_served(site):
        return unwell
    left = under_way(site)

    def done() -> bool:
        site.switch_on_what_is_off()
        now = under_way(site)
        for key in list(left):
            if key in now:
                left[key] = now[key]
            else:
                del left[key]
        return not left

    return _unless(done, left)


def wait_until_settled(site: Site) -> list[str]:
    """Until nothing is under way at all, whatever waits says why, and a new look finds no more."""
    if unwell := _wait_until_served(site):
        return unwell
    began_at = site.sql("SELECT clock_timestamp()")[0][0]
    left: dict[str, str] = {}

    def settled() -> bool:
        nonlocal began_at
        site.switch_on_what_is_off()
        left.clear()
        left.update(under_way(site))
        if left:
            began_at = site.sql("SELECT clock_timestamp()")[0][0]
            return False
        left.update({what: ids for what, ids in site.sql(_UNSETTLED, began_at) if ids})
        return not left

    return _unless(settled, left)


def wait_until_empty(site: Site) -> list[str]:
    """Until nothing is held, and nothing is left to be removed."""
    held = "SELECT (SELECT sum(committed) FROM inventories) + (SELECT count(*) FROM leftovers)"
    left: dict[str, str] = {}

    def empty() -> bool:
        site.switch_on_what_is_off()
        left.clear()
        left.update(under_way(site))
        return site.sql(held) == [(0,)]

    return _unless(empty, left)


def _wait_until_served(site: Site) -> list[str]:
    return _unless(lambda: serves(site), {"": "not every host is up, both APIs ready, one leading"})


def _unless(healed: Callable[[], bool], left: dict[str, str]) -> list[str]:
    try:
        eventually(healed, within_s=HEAL_S)
    except TimedOutError:
        return [f"{key} {what}" for key, what in left.items()] or ["something else"]
    return []
