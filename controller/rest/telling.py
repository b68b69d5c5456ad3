"""What a tenant is told of a record: what is its own, and nothing of how hosts are reached.

An operator is told everything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from controller.rest.auth import Caller
from controller.rest.schemas import RoundDetail
from registry import ConsoleSession, Event, Image, Network, Page, Request, RoundSummary, Vm

T = TypeVar("T")

_URI: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]*", re.IGNORECASE)


def told_page(page: Page[T], told: Callable[[T, Caller], T], caller: Caller) -> Page[T]:
    """Return a page as its reader may see it."""
    return Page(tuple(told(item, caller) for item in page.items), page.next)


def told_request(request: Request, caller: Caller) -> Request:
    """Leave out which host came nearest, and which are held back."""
    waiting = request.waiting
    if caller.is_operator or waiting is None:
        return request
    detail = dict(waiting.detail)
    if "shortages" in detail:
        detail["shortages"] = [_without_host(each) for each in detail["shortages"]]
    if "obstacles" in detail:
        detail["obstacles"] = [{**each, "only_hosts": []} for each in detail["obstacles"]]
    if "holding" in detail:
        detail["holding"] = [{"host": None} for _ in detail["holding"]]
    return dataclasses.replace(request, waiting=dataclasses.replace(waiting, detail=detail))


def told_image(image: Image, caller: Caller) -> Image:
    """Leave out where it came from, which may be nobody's business, and what went wrong there."""
    if caller.is_operator:
        return image
    return dataclasses.replace(image, source=None, last_error=None)


def told_vm(vm: Vm, caller: Caller) -> Vm:
    """Leave out URIs of hosts."""
    if caller.is_operator:
        return vm
    power = vm.power
    if power is not None:
        power = dataclasses.replace(power, last_error=_without_uris(power.last_error))
    return dataclasses.replace(vm, last_error=_without_uris(vm.last_error), power=power)


def told_network(network: Network, caller: Caller) -> Network:
    """Leave out what hosts call it."""
    if caller.is_operator:
        return network
    return dataclasses.replace(network, default=None, hosts={})


def told_session(session: ConsoleSession, caller: Caller) -> ConsoleSession:
    """Leave out URIs of hosts."""
    if caller.is_operator:
        return session
    return dataclasses.replace(session, reason=_without_uris(session.reason))


def told_text(text: str, caller: Caller) -> str:
    """Leave out URIs of hosts."""
    return text if caller.is_operator else _URI.sub("(its URI)", text)


def told_event(event: Event, caller: Caller) -> Event:
    """Leave out URIs of hosts."""
    if caller.is_operator:
        return event
    return dataclasses.replace(event, reason=_without_uris(event.reason))


def told_round(summary: RoundSummary, caller: Caller) -> RoundSummary:
    """Leave out the shares of others."""
    if caller.is_operator:
        return summary
    own = tuple(share for share in summary.shares if caller.sees(share["tenant"]))
    return dataclasses.replace(summary, shares=own, group_shares=())


def told_detail(detail: RoundDetail, caller: Caller) -> RoundDetail:
    """Leave out the shares of others, and the outcome, which names everybody's requests."""
    if caller.is_operator:
        return detail
    own = [share for share in detail.shares if caller.sees(share["tenant"])]
    return detail.model_copy(update={"shares": own, "group_shares": [], "outcome": None})


def _without_host(shortage: Mapping[str, Any]) -> dict[str, Any]:
    return {**shortage, "nearest_host": None}


def _without_uris(text: str | None) -> str | None:
    return None if text is None else _URI.sub("(its URI)", text)
