"""Checks of a host's fields and amounts before they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, func, literal, select

from registry.db.locks import take_advisory_lock
from registry.db.names import (
    MAX_AMOUNT,
    MAX_RATIO_THOUSANDTHS,
    check_amounts,
    check_host_labels,
    check_int,
    check_name,
)
from registry.db.row_conversion import row_of
from registry.db.schema import hosts
from registry.errors import ConflictError, InvalidError
from registry.hosts.machine_names import machine_label_of
from registry.hosts.uris import HostAccessMethod, access_method_of
from registry.ledger.shared_disks import shared_pool_of
from registry.lifecycle import HostAdmin, HostHealth
from registry.records.hosts import NewHost
from registry.tenancy.public_keys import check_public_key

DOMAIN_TYPES = ("kvm", "qemu", "test")
MAX_BUILDS = 64
MAX_HOST_KEYS = 8


class Keep(Enum):
    """Marks an optional field as unchanged, where None is a value."""

    AS_IT_IS = auto()


def checked_amounts(
    field: str, amounts: Mapping[str, int], names: Sequence[str], low: int = 0
) -> dict[str, int]:
    """Return a host's amounts (or ratios, in thousandths) by resource, within their bounds."""
    checked = check_amounts(field, amounts, names, low=low)
    high = MAX_RATIO_THOUSANDTHS if field == "ratios" else MAX_AMOUNT
    for name, amount in checked.items():
        check_int(f"{field}.{name}", amount, low, high)
    return checked


def checked_connection(
    uri: str, credential: str | None, ssh_host_keys: Sequence[str]
) -> dict[str, Any]:
    """Return the columns of a host's URI, credential and SSH host keys."""
    opening = access_method_of(uri)
    if credential is not None:
        check_name("credential", credential)
        if opening is None:
            raise InvalidError("credential", credential, "none: only TLS and SSH have one")
        if "?" in uri:
            raise InvalidError("credential", credential, "none: the URI has parameters of its own")
    elif opening is HostAccessMethod.SSH:
        raise InvalidError("credential", None, "a credential's name: it holds the key for SSH")
    if ssh_host_keys and opening is not HostAccessMethod.SSH:
        raise InvalidError("ssh_host_keys", len(ssh_host_keys), "none: the URI is not of SSH")
    if len(ssh_host_keys) > MAX_HOST_KEYS:
        raise InvalidError("ssh_host_keys", len(ssh_host_keys), f"at most {MAX_HOST_KEYS} keys")
    return {"credential": credential, "ssh_host_keys": checked_host_keys(ssh_host_keys)}


def checked_host_keys(keys: Sequence[str]) -> list[str]:
    """Return hosts' public SSH keys without comments and duplicates."""
    checked = [check_public_key(f"ssh_host_keys.{place}", key) for place, key in enumerate(keys)]
    return list(dict.fromkeys(" ".join(key.split()[:2]) for key in checked))


def checked_fields(new: NewHost) -> dict[str, Any]:
    """Return a new host's columns, except its name and URI."""
    if new.domain_type not in DOMAIN_TYPES:
        raise InvalidError("domain_type", new.domain_type, f"one of {', '.join(DOMAIN_TYPES)}")
    for field, value in (
        ("pool", new.pool),
        ("network", new.network),
        ("base_volume", new.base_volume),
    ):
        if value is not None and not (value.isprintable() and 1 <= len(value) <= 255):
            raise InvalidError(field, value, "1 to 255 printable characters")
    if new.memory_backing_mib is not None:
        check_int("memory_backing_mib", new.memory_backing_mib, 1, MAX_AMOUNT)
    return row_of(
        hosts,
        new,
        admin=HostAdmin.ACTIVE.value,
        health=HostHealth.ENROLLING.value,
        max_builds=check_int("max_builds", new.max_builds, 1, MAX_BUILDS),
        fence_target=checked_fence_target(new.fence_target),
        **checked_connection(new.uri, new.credential, new.ssh_host_keys),
        **checked_host_labels(new.labels),
    )


def checked_host_labels(labels: Iterable[str]) -> dict[str, Any]:
    """Return the columns of a host's labels, with the pool and machine that labels name."""
    checked = check_host_labels("labels", labels)
    return {
        "labels": list(checked),
        "shared_pool": shared_pool_of(checked),
        "machine_label": machine_label_of(checked),
    }


def checked_fence_target(target: str | None) -> str | None:
    """Return a host's argument of the fencing command; it must not look like an option."""
    if target is not None and not (
        target.isprintable()
        and 1 <= len(target) <= 255
        and not target.startswith("-")
        and target == target.strip()
    ):
        allowed = "1 to 255 printable characters, the first of them no -, no blanks at its ends"
        raise InvalidError("fence_target", target, allowed)
    return target


def fence_target_key(target: Column[Any] | ColumnElement[Any]) -> ColumnElement[str]:
    """Return what equal fence targets share, of a column or value of SQL.

    Letters count in any case. A dot at the end makes no other host of a name, and earlier releases
    accepted blanks there.
    """
    return func.lower(func.rtrim(func.ltrim(target), " ."))


def host_with_fence_target(connection: Connection, target: str, *, apart_from: UUID) -> str | None:
    """Return the name of another host that is not retired with the same fence target."""
    query = (
        select(hosts.c.name)
        .where(
            hosts.c.id != apart_from,
            hosts.c.admin != HostAdmin.RETIRED.value,
            fence_target_key(hosts.c.fence_target) == fence_target_key(literal(target)),
        )
        .order_by(hosts.c.name)
        .limit(1)
    )
    return connection.scalars(query).one_or_none()


def refuse_taken_fence_target(connection: Connection, target: str | None, host_id: UUID) -> None:
    """Raise `ConflictError` if another host has a fence target: its machine would be fenced."""
    if target is None:
        return
    take_advisory_lock(connection, "fence targets")
    owner = host_with_fence_target(connection, target, apart_from=host_id)
    if owner is not None:
        raise ConflictError(
            f"fence target {target} is that of host {owner}: to fence one of both would switch the"
            " other one off. Give each host a target of its own; of a device for several, with"
            " the host's outlet in it"
        )


def inventory_rows(key: UUID, new: NewHost, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a new host's inventory, a row for every resource."""
    overrides = checked_amounts("overrides", new.overrides, names)
    reserved = checked_amounts("reserved", new.reserved, names)
    ratios = checked_amounts("ratios", new.ratios, names, 1)
    return [
        {
            "host_id": key,
            "resource": name,
            "override": overrides.get(name),
            "reserved": reserved.get(name, 0),
            "own_ratio_thousandths": ratios.get(name),
        }
        for name in names
    ]
