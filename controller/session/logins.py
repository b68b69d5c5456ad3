"""The file in which `fuga login` stores tokens by API address, readable by its user only."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from controller.session.private_files import check_only_owner_writes, write_private
from controller.terminal.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLogins:
    """Tokens by the API address that issued them; each is sent only to its address."""

    last: str | None = None  #: the URL of the last login
    tokens: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the stored logins; without a file there are none."""
        try:
            with path.open() as file:
                check_only_owner_writes(file.fileno(), path)
                content = json.loads(file.read())
            return cls(last=content["last"], tokens=dict(content["tokens"]))
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise BadInputError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path} is not a file of logins ({error!r}); remove it") from None

    def save(self, path: Path) -> None:
        """Write the logins to a file atomically, readable only by its owner."""
        content = {"last": self.last, "tokens": dict(self.tokens)}
        write_private(path, json.dumps(content, indent=2) + "\n")

    def with_login(self, urls: Sequence[str], token: str) -> Self:
        """Return the logins with a token added for an API's addresses."""
        kept = {**self.tokens, **dict.fromkeys(urls, token)}
        return replace(self, last=",".join(urls), tokens=kept)

    def without_login(self, urls: Sequence[str]) -> Self:
        """Return the logins without those at the given addresses."""
        left = {address: token for address, token in self.tokens.items() if address not in urls}
        return replace(self, last=None if self.last == ",".join(urls) else self.last, tokens=left)


def change_logins(path: Path, change: Callable[[StoredLogins], StoredLogins]) -> None:
    """Change the file of logins under a lock, so that simultaneous commands lose no change."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            change(StoredLogins.load(path)).save(path)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from None


def logins_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the file of logins; None if the user has no home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):
        return Path(base, "fuga", "logins.json")
    home = environ.get("HOME", "")
    return Path(home, ".config", "fuga", "logins.json") if home.startswith("/") else None
