"""The protocol between parent and child process: one JSON object per line.

Request:  ``{"op": "define", "args": {...}}``
Answer:   ``{"ok": ...}`` or ``{"error": "unreachable" | "failed", "reason": ..., "code": ...}``

The child of a move answers with any number of lines ``{"progress": ...}`` first, and accepts
``{"op": "abort"}`` during the move.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from hypervisor.model import (
    DomainSpec,
    DomainState,
    Guard,
    HostDomain,
    HostPoll,
    HostVolume,
    Mark,
    VmLimits,
)
from hypervisor.move_model import MoveSpec


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a line of JSON; dataclasses become objects of their fields."""
    return json.dumps(message, default=_json_default, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Decode a line of JSON; raise ValueError if it is no object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"not an object: {line[:80]!r}")  # noqa: TRY004 - one error for bad lines
    return message


def decode_mark(fields: Mapping[str, Any] | None) -> Mark | None:
    """Decode a mark."""
    return None if fields is None else Mark(**fields)


def decode_domain(fields: Mapping[str, Any] | None) -> HostDomain | None:
    """Decode a domain."""
    if fields is None:
        return None
    return HostDomain(
        **{**fields, "state": DomainState(fields["state"]), "mark": decode_mark(fields["mark"])}
    )


def decode_guard(fields: Mapping[str, Any] | None) -> Guard | None:
    """Decode a guard."""
    if fields is None:
        return None
    lists = {name: tuple(fields[name]) for name in ("reaches", "closed", "services", "ports")}
    return Guard(**{**fields, **lists})


def decode_domain_spec(fields: Mapping[str, Any]) -> DomainSpec:
    """Decode the specification of a domain."""
    made = {
        "mark": Mark(**fields["mark"]),
        "limits": VmLimits(**fields["limits"]),
        "guard": decode_guard(fields["guard"]),
    }
    return DomainSpec(**{**fields, **made})


def decode_move_spec(fields: Mapping[str, Any]) -> MoveSpec:
    """Decode the specification of a move."""
    made = {
        "mark": Mark(**fields["mark"]),
        "guard": decode_guard(fields["guard"]),
        "ports": tuple(fields["ports"]),
    }
    return MoveSpec(**{**fields, **made})


def decode_poll(fields: Mapping[str, Any]) -> HostPoll:
    """Decode a host poll."""
    domains = (decode_domain(domain) for domain in fields["domains"])
    return HostPoll(
        **{
            **fields,
            "domains": tuple(domain for domain in domains if domain is not None),
            "interfaces": tuple((name, mac) for name, mac in fields["interfaces"]),
            "unnamed": tuple(fields["unnamed"]),
            "volumes": tuple(HostVolume(**volume) for volume in fields["volumes"]),
        }
    )


def _json_default(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} does not cross the wire")
