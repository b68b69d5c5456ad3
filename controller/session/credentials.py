"""Finds the API's address and the token for commands."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.client.connection import ApiConnection
from controller.session.logins import StoredLogins, logins_file
from controller.session.private_files import check_only_owner_writes, write_private
from controller.terminal.errors import BadInputError

DEFAULT_URL = "http://127.0.0.1:8732"
FILE_NAME = "credentials.json"

UP_NAME_PREFIX: Final = "fuga-up-"  #: prefix of the names of operators' tokens by `fuga up`


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The file that `fuga up` writes to the state folder, readable only by its owner."""

    url: str = DEFAULT_URL
    operator: str | None = None
    tenants: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Credentials | None:
        """Read the credentials that `fuga up` stored; return None if there is no file."""
        try:
            with path.open() as file:
                check_only_owner_writes(file.fileno(), path)
                content = json.loads(file.read())
            return cls(
                url=content["url"],
                operator=content.get("operator"),
                tenants=dict(content.get("tenants", {})),
            )
        except FileNotFoundError:
            return None
        except PermissionError:
            raise BadInputError(
                f"{path} belongs to another user. Run as that user, or set FUGA_URL and FUGA_TOKEN."
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInputError(
                f"{path} is not a credentials file ({error!r}). Remove it, then `fuga up` "
                "writes a new one."
            ) from None

    def save(self, path: Path) -> None:
        """Write the credentials to a file atomically, readable only by its owner."""
        content = {"url": self.url, "operator": self.operator, "tenants": dict(self.tenants)}
        write_private(path, json.dumps(content, indent=2) + "\n")


def find_connection(
    environ: Mapping[str, str], *, url: str | None = None, tenant: str | None = None
) -> ApiConnection:
    """Return the API's address and token: by option, environment, settings, state folder, logins.

    The address may be a list with commas. A token of the state folder is sent only to the address
    stored with it.

    The few settings are read here directly, because importing the settings classes takes a quarter
    of a second.
    """
    file = settings_file(environ)
    path = state_dir(environ) / FILE_NAME
    named = url or environ.get("FUGA_URL") or _setting_text(file, "url")
    token = environ.get("FUGA_TOKEN") or _setting_text(file, "token")
    # The file is read only if its content is needed.
    wanted = tenant is not None or named is None or token is None
    found = Credentials.load(path) if wanted else None
    own = found is not None and _is_same_address(named or found.url, found.url)
    if tenant is not None:
        token = found.tenants.get(tenant) if found else None
        if found is not None and token is not None and not own:
            raise BadInputError(
                f"the token of tenant {tenant!r} in {path} is for {found.url}, and is not sent to"
                f" {named}. Set FUGA_TOKEN to a token of that API."
            )
        if token is None:
            known = ", ".join(found.tenants) if found and found.tenants else "none"
            raise BadInputError(
                f"{path} has no token of tenant {tenant!r} (known: {known}). "
                f"Create one with `fuga token create --tenant {tenant} --save`."
            )
    else:
        token = token or (found.operator if found and own else None)
    address = named or (found.url if found else None)
    kept = logins_file(environ)
    if kept is not None and (address is None or token is None):
        logins = StoredLogins.load(kept)
        address = address or logins.last
        # A login's token is used only if it belongs to all addresses.
        tokens = {logins.tokens.get(each) for each in _split_addresses(address or "")}
        token = token or (tokens.pop() if len(tokens) == 1 else None)
    first, *others = _split_addresses(address or DEFAULT_URL)
    for each in (first, *others):
        if not each.startswith(("http://", "https://")):
            raise BadInputError(f"the API's address must start with http:// or https://: {each!r}")
    ca = environ.get("FUGA_CA") or _setting_text(file, "ca")
    return ApiConnection(url=first, others=tuple(others), token=token, ca=ca)


def _split_addresses(text: str) -> list[str]:
    """Split a list with commas into addresses, without repeats; at least one."""
    found = [each.strip().rstrip("/") for each in text.split(",")]
    return list(dict.fromkeys(each for each in found if each)) or [text]


def _is_same_address(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the state folder of the embedded profile, by default ``.fuga``."""
    named = environ.get("FUGA_STATE_DIR") or _setting_text(settings_file(environ), "state_dir")
    return Path(named or ".fuga")


def settings_file(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the settings in the file of FUGA_CONFIG; empty if it is unset."""
    name = environ.get("FUGA_CONFIG")
    if not name:
        return {}
    try:
        return tomllib.loads(Path(name).read_text())
    except OSError as error:
        raise BadInputError(f"FUGA_CONFIG: cannot read {name}: {error.strerror}") from None
    except ValueError as error:
        raise BadInputError(f"FUGA_CONFIG: {name} is not TOML: {error}") from None


def _setting_text(settings: Mapping[str, Any], key: str) -> str | None:
    value = settings.get(key)
    return value if isinstance(value, str) and value else None
