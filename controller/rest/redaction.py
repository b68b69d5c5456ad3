"""Redaction of records for tenants: only their own data, and nothing that identifies hosts.

Hosts get the tenant's aliases, error texts lose everything that identifies a machine, and numbers
that include other tenants' VMs are shown in steps. Operators see everything. Records are stored in
full and redacted when they are read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from controller.host_aliases import Viewer
from controller.queries.coarse_numbers import round_down_to_step, round_to_percent
from controller.queries.request_explanation import redact_wait_detail
from controller.queries.tenant_shares import TenantShare
from controller.rest.middleware.callers import Caller
from controller.rest.schemas.operations import RoundDetail
from controller.rest.schemas.operations import RoundSummary as RoundInList
from controller.rest.schemas.volumes import Volume
from registry.audit import Event
from registry.consoles import ConsoleSession
from registry.db import Page
from registry.images import Image
from registry.networks import Network
from registry.requests import Request, Vm, VmGroup
from registry.rounds import RoundListEntry
from registry.volumes import Volume as StoredVolume

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")

#: Keys of a round's row about a tenant that hold shares of the cluster.
_SHARES: Final = ("before", "after", "target")

#: The name of a VM's domain on its host.
_DOMAIN: Final = re.compile(r"fuga-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w.-])")


def redact_page(page: Page[T], render: Callable[[T, R], S], reader: R) -> Page[S]:
    """Redact the items of a page for its reader."""
    return Page(tuple(render(item, reader) for item in page.items), page.next)


def redact_request(request: Request, reader: Viewer) -> Request:
    """Replace host names by the reader's aliases; hide near misses and reserved hosts."""
    if (request.hosts is None and request.waiting is None) or reader.is_operator:
        return request
    hosts = None if request.hosts is None else tuple(sorted(map(reader.host, request.hosts)))
    waiting = request.waiting
    if waiting is not None:
        waiting = dataclasses.replace(waiting, detail=redact_wait_detail(waiting.detail))
    return dataclasses.replace(request, hosts=hosts, waiting=waiting)


def redact_image(image: Image, caller: Caller) -> Image:
    """Hide the image's origin and errors from tenants."""
    if caller.is_operator:
        return image
    held = None if image.held_reason is None else "hosts stopped answering while they received it"
    return dataclasses.replace(image, source=None, last_error=None, held_reason=held)


def redact_vm(vm: Vm, reader: Viewer) -> Vm:
    """Replace host names by the reader's aliases; hide machines in errors, and operators."""
    if reader.is_operator:
        return vm
    power = vm.power
    if power is not None:
        power = dataclasses.replace(
            power,
            requested_by=reader.actor(power.requested_by),
            last_error=reader.redact_text_or_none(power.last_error),
        )
    return dataclasses.replace(
        vm,
        host=reader.host_or_none(vm.host),
        moving_to=reader.host_or_none(vm.moving_to),
        last_error=reader.redact_text_or_none(vm.last_error),
        ending_for=reader.own_request(vm.ending_for),
        power=power,
    )


def redact_volume(volume: StoredVolume, reader: Viewer) -> Volume:
    """Return a volume as the API shows it; a tenant sees its alias of the host."""
    shown = Volume.of(volume)
    error = reader.redact_text_or_none(shown.last_error)
    if error is not None and not reader.is_operator:
        error = _DOMAIN.sub("of a VM", error)  # which may be another tenant's
    return dataclasses.replace(shown, host=reader.host_or_none(shown.host), last_error=error)


def redact_vm_group(group: VmGroup, reader: Viewer) -> VmGroup:
    """Replace host names by the reader's aliases, sorted by alias."""
    if reader.is_operator:
        return group
    hosts = sorted((reader.host(host), vms) for host, vms in group.hosts.items())
    return dataclasses.replace(group, hosts=dict(hosts))


def redact_network(network: Network, caller: Caller) -> Network:
    """Hide a network's names on hosts and its other users; round their number of addresses."""
    if caller.is_operator:
        return network
    return dataclasses.replace(
        network,
        default=None,
        hosts={},
        addresses_used=round_down_to_step(network.addresses_used),
        offered_to=None,
        warnings=(),
    )


def redact_session(session: ConsoleSession, reader: Viewer) -> ConsoleSession:
    """Hide machines in the reason why a console session ended."""
    return dataclasses.replace(session, reason=reader.redact_text_or_none(session.reason))


def redact_shares(standings: Sequence[TenantShare], tenant: str) -> Sequence[TenantShare]:
    """Return the tenant's own shares in percent; exact ones would reveal the cluster's size."""
    return [
        dataclasses.replace(
            each, share=round_to_percent(each.share), entitlement=round_to_percent(each.entitlement)
        )
        for each in standings
        if each.name == tenant
    ]


def redact_event(event: Event, reader: Viewer) -> Event:
    """Replace host names by the reader's aliases; hide operators and processes."""
    if reader.is_operator:
        return event
    data = dict(event.data)
    for place in ("host", "from", "to"):
        if isinstance(data.get(place), str):
            data[place] = reader.host(data[place])
    return dataclasses.replace(
        event,
        actor=reader.actor(event.actor),
        reason=reader.redact_text_or_none(event.reason),
        data=data,
    )


def redact_round(summary: RoundListEntry, reader: Viewer) -> RoundInList:
    """Hide a round's shares of others, and its counts over all tenants' VMs."""
    entry = RoundInList.model_validate(summary)
    if reader.is_operator:
        return entry
    return entry.model_copy(update=_own_part_of_round(summary, reader))


def redact_round_detail(detail: RoundDetail, reader: Viewer) -> RoundDetail:
    """Redact a round's shares and counts; hide the outcome, which names other tenants' VMs."""
    if reader.is_operator:
        return detail
    hidden: dict[str, Any] = {
        "outcome": None,
        "games": [],
        "comparisons": [],
        "spot_preemptions": [],
        "reservations": [],
        "shadow": None,
    }
    return detail.model_copy(update={**_own_part_of_round(detail, reader), **hidden})


def _own_part_of_round(entry: RoundListEntry | RoundDetail, reader: Viewer) -> dict[str, Any]:
    """Return the fields of a round that a tenant sees otherwise than an operator."""
    return {
        "shares": [
            _rounded_share(each) for each in entry.shares if each["tenant"] == reader.tenant
        ],
        "group_shares": [],
        "prices": None,
        "bound": None,
        "fair_distance": None,
        "placed": None,
        "left_out": None,
        "dropped": None,
        "work": None,
        "timings": {},
        "fallback_reason": reader.redact_text_or_none(entry.fallback_reason),
    }


def _rounded_share(share: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: share[name] for name in _SHARES if share.get(name) is not None}
    return {**share, **{name: round_to_percent(each) for name, each in known.items()}}
