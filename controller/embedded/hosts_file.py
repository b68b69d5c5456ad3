"""The file of `fuga up --hosts`: an operator's own hosts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from controller.terminal.errors import BadInputError

_TEXT: Final = ("name", "uri", "credential", "domain_type", "pool", "network", "base_volume")
_AMOUNTS: Final = ("overrides", "reserved")
_POSITIVE: Final = ("max_builds", "memory_backing_mib")
_ALLOWED: Final = ("name", "uri", "credential", "ssh_host_keys", "labels", "overrides",
                   "reserved", "ratios", "pool", "network", "domain_type", "base_volume",
                   "memory_backing_mib", "max_builds")  # fmt: skip
DOMAIN_TYPES: Final = ("kvm", "qemu", "test")


def read_hosts_file(path: Path) -> list[dict[str, Any]]:
    """Read the hosts of a TOML file, as bodies of `POST /v1/hosts`.

    Raises
    ------
    BadInputError
        If the file is invalid. The error names the file, the key, the value and what is allowed.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInputError(f"{path}: not TOML: {error}") from None
    for key in content:
        if key != "host":
            raise BadInputError(f"{path}: {key}: unknown; only [[host]] tables are allowed")
    tables = content.get("host")
    if not isinstance(tables, list) or not tables:
        raise BadInputError(f"{path}: holds no [[host]] table; at least one is needed")
    hosts = [_HostTable(path, index, table).body() for index, table in enumerate(tables)]
    for key in ("name", "uri"):
        seen: dict[str, int] = {}
        for index, host in enumerate(hosts):
            first = seen.setdefault(host[key], index)
            if first != index:
                raise BadInputError(
                    f"{path}: host[{index}].{key}: found {host[key]!r}, which host[{first}] has"
                )
    return hosts


class _HostTable:
    """Converts one [[host]] table of the file to the body of a call."""

    def __init__(self, path: Path, index: int, table: object) -> None:
        self._path = path
        self._index = index
        if not isinstance(table, dict):
            raise BadInputError(f"{path}: host[{index}]: must be a table, written as [[host]]")
        self._table: Mapping[str, Any] = table

    def body(self) -> dict[str, Any]:
        """Return the table as the body of `POST /v1/hosts`; refuse unknown keys and bad values."""
        for key in self._table:
            if key not in _ALLOWED:
                raise BadInputError(
                    f"{self._path}: host[{self._index}].{key}: unknown; "
                    f"allowed: {', '.join(_ALLOWED)}"
                )
        for key in ("name", "uri"):
            if key not in self._table:
                raise BadInputError(f"{self._path}: host[{self._index}].{key}: missing")
        for key in _TEXT:
            self._check_value(key, lambda it: isinstance(it, str) and it != "", "a text")
        self._check_value("domain_type", lambda it: it in DOMAIN_TYPES, f"one of {DOMAIN_TYPES}")
        for key, example in (("labels", "ssd"), ("ssh_host_keys", "ssh-ed25519 AAAA…")):
            self._check_value(
                key,
                lambda it: isinstance(it, list) and all(isinstance(each, str) for each in it),
                f'a list of texts, such as ["{example}"]',
            )
        for key in _POSITIVE:
            self._check_value(key, lambda it: _is_amount(it) and it >= 1, "a whole number ≥ 1")
        body = dict(self._table)
        for key in _AMOUNTS:
            self._check_amounts(key, lambda it: _is_amount(it) and it >= 0, "a whole number ≥ 0")
        self._check_amounts(
            "ratios",
            lambda it: isinstance(it, int | float) and not isinstance(it, bool) and 0 < it <= 1000,
            "a number above 0, 1000 at most",
        )
        if "ratios" in body:
            body["ratios"] = {name: round(it * 1000) for name, it in body["ratios"].items()}
        return body

    def _check_value(self, key: str, fits: Any, allowed: str) -> None:
        if key in self._table and not fits(self._table[key]):
            self._refuse_value(key, self._table[key], allowed)

    def _check_amounts(self, key: str, fits: Any, allowed: str) -> None:
        amounts = self._table.get(key, {})
        if not isinstance(amounts, dict):
            self._refuse_value(key, amounts, "a table such as { vcpus = 8, memory_mib = 16384 }")
        for resource, amount in amounts.items():
            if not fits(amount):
                self._refuse_value(f"{key}.{resource}", amount, allowed)

    def _refuse_value(self, key: str, found: object, allowed: str) -> None:
        raise BadInputError(
            f"{self._path}: host[{self._index}].{key}: found {found!r}; must be {allowed}"
        )


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
