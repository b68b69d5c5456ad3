"""Whether processes answer /readyz, and why one that starts cannot."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from controller.session.settings import load_as, load_settings
from controller.terminal.errors import BadInputError, CliError, WaitExpiredError

_PATH: Final = "/readyz"
_EVERY_S: Final = 1.0
_ANSWER_S: Final = 5.0
#: What processes import before they listen.
_MODULES: Final = (
    "controller.rest.server, controller.control_center.slot_loop, monitor.service, workers.tasks"
)
_IMPORT_S: Final = 120.0
#: Ends of one unit after which systemd's next start will not differ.
_STARTS: Final = 3
#: Units of processes that answer /readyz; a backup that failed ends no wait.
_UNITS: Final = tuple(
    f"fuga-{name}.service" for name in ("api*", "control*", "monitor*", "worker@*")
)
_LOGS: Final = "systemctl status 'fuga-*'; journalctl -u fuga-api -n 20 (or the unit's name)"


@dataclass(frozen=True, slots=True)
class _ReadinessAnswer:
    """What a process answered to /readyz, or why it did not."""

    ready: bool
    heard: bool  #: something listens there
    message: str


def wait_until_ready(
    url: str, *, ca: str | None, ends_at: float, refused_for_s: float, say: Callable[[str], None]
) -> None:
    """Wait until a process answers 200 at ``url``, by ``ends_at`` of the monotonic clock.

    Raises
    ------
    CliError
        If it cannot start, with the reason, or nothing listened for ``refused_for_s``.
    WaitExpiredError
        If it is not ready by then.
    """
    context = ssl.create_default_context(cafile=ca)
    last = _query_readiness(url, context)
    silent_from, judged, said = time.monotonic(), False, ""
    here = _is_this_machine(url)
    while not last.ready:
        if last.heard:
            silent_from = time.monotonic()
        elif here and (
            reason := next(_crashed_units() if judged else _failure_reasons(ends_at), None)
        ):
            raise CliError(f"{url}: {last.message}; {reason}")
        # Judging takes long on a busy machine: ask once more before giving up.
        elif judged and time.monotonic() - silent_from >= refused_for_s:
            raise CliError(
                f"{url}: {last.message} for {refused_for_s:g} s: its process was not started, or"
                f" ends before it listens: {_LOGS}"
            )
        judged = judged or not last.heard
        if time.monotonic() >= ends_at:
            raise WaitExpiredError(f"{url} is not ready: {last.message}; see {_LOGS}")
        if last.message != said:
            said = last.message
            say(f"{url}: {said}")
        time.sleep(_EVERY_S)
        last = _query_readiness(url, context)


def _query_readiness(url: str, context: ssl.SSLContext) -> _ReadinessAnswer:
    """Read /readyz of a process once."""
    if not url.startswith(("http://", "https://")):
        raise BadInputError(f"{url}: an address begins with http:// or https://")
    whole = url.rstrip("/").removesuffix(_PATH) + _PATH
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
    try:
        with urllib.request.build_opener(*handlers).open(whole, timeout=_ANSWER_S):
            return _ReadinessAnswer(True, True, "ready")
    except urllib.error.HTTPError as error:
        with error:
            return _ReadinessAnswer(
                False, True, _missing_checks(error.read()) or f"HTTP status {error.code}"
            )
    except (OSError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        refused = isinstance(cause, ConnectionRefusedError)
        return _ReadinessAnswer(
            False, not refused, "nothing listens there" if refused else str(cause)
        )


def _missing_checks(body: bytes) -> str | None:
    """Return the failed checks in a process's answer, as text."""
    try:
        document = json.loads(body)
        checks = document.get("checks", {})
        lacking = [f"{name}: {each['message']}" for name, each in checks.items() if not each["ok"]]
        return "; ".join(lacking) or document.get("detail")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_this_machine(url: str) -> bool:
    """Return whether the host of a URL is this machine."""
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, 0, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):
        return False
    for family, kind, protocol, _, address in found:
        with suppress(OSError), socket.socket(family, kind, protocol) as own:
            own.bind(address)  # only an address of this machine can be bound
            return True
    return False


def _failure_reasons(ends_at: float) -> Iterator[str]:
    """Yield reasons why no process starts on this machine, the most basic first."""
    from registry import RegistryUnavailableError  # noqa: PLC0415 - slow; `--help` needs none

    yield from _import_errors(ends_at)
    yield from _settings_errors()
    with suppress(RegistryUnavailableError):
        yield from _schema_errors()
    yield from _crashed_units()


def _import_errors(ends_at: float) -> Iterator[str]:
    """Yield an error if the modules of the processes cannot be imported."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"import {_MODULES}"],
            capture_output=True,
            text=True,
            timeout=min(_IMPORT_S, max(0.0, ends_at - time.monotonic())),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return  # a busy machine: nothing is known
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        yield f"its modules cannot be imported: {last[0]}; install the release again"


def _settings_errors() -> Iterator[str]:
    """Yield an error if the settings of a process are invalid."""
    from controller.policies import check_policies  # noqa: PLC0415 - slow; `--help` needs none
    from registry import SettingsError  # noqa: PLC0415
    from service.settings_names import settings_classes  # noqa: PLC0415

    try:
        for each in settings_classes().values():
            load_as(each)
        check_policies(load_settings())
    except (BadInputError, SettingsError) as error:
        yield f"the settings are refused: {error}"


def _schema_errors() -> Iterator[str]:
    """Yield an error if the database does not have the schema of this version."""
    from registry import Registry, RegistryError, RegistryUnavailableError  # noqa: PLC0415

    settings = load_settings()
    if settings.database_url is None and not (settings.state_dir / "fuga.db").exists():
        return
    try:
        registry = Registry.connect(settings.resolved_database_url())
        try:
            registry.check_schema()
        finally:
            registry.close()
    except RegistryUnavailableError:
        raise
    except RegistryError as error:
        yield str(error)
    except Exception as error:  # a schema of two heads raises what Alembic has
        if type(error).__module__.startswith("alembic"):
            yield f"the release's schema is damaged: {error}; install the release again"


def _crashed_units() -> Iterator[str]:
    """Yield the systemd unit that crashes repeatedly, if the database is available."""
    from registry import RegistryUnavailableError  # noqa: PLC0415

    if (crashed := crashed_unit()) is None:
        return
    try:
        yield from _schema_errors()
    except RegistryUnavailableError:
        return
    yield crashed


def crashed_unit() -> str | None:
    """Return the unit that systemd restarts repeatedly, with its last log lines; else None."""
    if shutil.which("systemctl") is None:
        return None
    shown = _command_output("systemctl", "show", *_UNITS, "-p", "Id,SubState,NRestarts")
    for block in shown.split("\n\n"):
        unit = dict(line.partition("=")[::2] for line in block.splitlines())
        restarts = unit.get("NRestarts", "0")
        ended = unit.get("SubState") in {"auto-restart", "failed"}
        if unit.get("SubState") == "failed" or (ended and int(restarts or 0) >= _STARTS):
            name = unit.get("Id", "")
            words = _command_output("journalctl", "-u", name, "-n", "3", "--no-pager", "-o", "cat")
            last = " | ".join(words.strip().splitlines()) or "no words in the journal"
            return f"{name} ended {restarts} times: {last}; journalctl -u {name} -n 20"
    return None


def _command_output(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
