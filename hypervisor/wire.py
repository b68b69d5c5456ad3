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
    """Encode a message to or from a child process as a line of JSON."""
    return json.dumps(message, default=_json_default, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Decode a message to or from a child process; raise ValueError if it is no object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"not an object: {line[:80]!r}")  # noqa: TRY004 - one error for bad lines
    return message


def decode_mark(fields: Mapping[str, Any] | None) -> Mark | None:
    """Return the mark of a domain from a message's fields; None for None."""
    return None if fields is None else Mark(**fields)


def decode_domain(fields: Mapping[str, Any] | None) -> HostDomain | None:
    """Return a host's domain from a message's fields; None for None."""
    if fields is None:
        return None
    made = {
        "state": DomainState(fields["state"]),
        "mark": decode_mark(fields["mark"]),
        "attached": tuple(fields["attached"]),
        "volume_files": tuple(fields["volume_files"]),
    }
    return HostDomain(**{**fields, **made})


def decode_guard(fields: Mapping[str, Any] | None) -> Guard | None:
    """Return the guard of a network interface from a message's fields; None for None."""
    if fields is None:
        return None
    lists = {name: tuple(fields[name]) for name in ("reaches", "closed", "services", "ports")}
    return Guard(**{**fields, **lists})


def decode_domain_spec(fields: Mapping[str, Any]) -> DomainSpec:
    """Return the specification of a domain to define from a message's fields."""
    made = {
        "mark": Mark(**fields["mark"]),
        "limits": VmLimits(**fields["limits"]),
        "guard": decode_guard(fields["guard"]),
    }
    return DomainSpec(**{**fields, **made})


def decode_move_spec(fields: Mapping[str, Any]) -> MoveSpec:
    """Return the specification of a move from a message's fields."""
    made = {
        "mark": Mark(**fields["mark"]),
        "guard": decode_guard(fields["guard"]),
        "ports": tuple(fields["ports"]),
    }
    return MoveSpec(**{**fields, **made})


def decode_poll(fields: Mapping[str, Any]) -> HostPoll:
    """Return the poll of a host from a message's fields."""
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
    """Return a dataclass as an object of its fields, for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} does not cross the wire")
