"""Tenants' own labels on requests and VMs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Table

from registry.errors import InvalidError

MAX_OWN_LABELS: Final = 32
_KEY: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:/@+-]{0,61}[A-Za-z0-9])?")


def check_own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a tenant's labels of a request or VM, by key in order, or raise `InvalidError`."""
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            allowed = "1 to 63 letters, digits and . _ / -, first and last a letter or digit"
            raise InvalidError("labels", key, f"keys of {allowed}")
        if not _VALUE.fullmatch(value):
            allowed = "1 to 63 letters, digits and . _ : / @ + -, first and last a letter or digit"
            raise InvalidError(f"labels.{key}", value, allowed)
    if len(labels) > MAX_OWN_LABELS:
        raise InvalidError("labels", len(labels), f"at most {MAX_OWN_LABELS}")
    return dict(sorted(labels.items()))


def changed_labels(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return a tenant's labels after changes; the value None removes a label."""
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return check_own_labels(after)


def label_conditions(table: Table, wanted: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return the conditions that rows have these labels of tenants, given as ``key=value``."""
    conditions = []
    for each in wanted:
        key, equals, value = each.partition("=")
        if not (equals and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            raise InvalidError("label", each, "KEY=VALUE as on requests and VMs")
        labels: Any = table.c.labels
        conditions.append(labels[key].as_string() == value)
    return conditions
