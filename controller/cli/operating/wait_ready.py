"""`fuga wait-ready`: wait for processes that start, and say at once why one cannot."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from controller.session.config_option import ConfigOption
from controller.session.session import Session, pass_session


@pass_session
def wait_ready(
    session: Session,
    config: ConfigOption = None,
    *,
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL...",
            help="Processes, such as http://127.0.0.1:8733 (default: the API, FUGA_URL)",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Maximum seconds to wait", min=0)] = 600,
    refused_for: Annotated[
        float, typer.Option(help="Maximum seconds in which nothing listens at an address", min=0)
    ] = 60,
) -> None:
    """Wait until processes answer /readyz with 200, and end at once if one cannot start.

    While nothing listens at an address of this machine it looks at settings, imports, the
    database's schema and systemd's units, and ends with what it found.
    """
    from controller.cli.operating.readiness import wait_until_ready  # noqa: PLC0415 - TLS, slow

    ends_at = time.monotonic() + timeout
    ready = []
    named = ",".join(urls or session.connection.urls).split(",")
    for url in dict.fromkeys(each.strip() for each in named if each.strip()):
        wait_until_ready(
            url,
            ca=session.connection.ca,
            ends_at=ends_at,
            refused_for_s=refused_for,
            say=session.print_message,
        )
        session.print_message(f"{url} is ready")
        ready.append({"name": url, "ready": True})
    if session.json:
        session.answer(ready)
