"""`fuga stop`, `start`, `reboot`: switch VMs off and on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.session.call_series import call_for_each
from controller.session.name_lookup import find_targets
from controller.session.polling import wait_until_switched
from controller.session.session import Session, pass_session
from controller.terminal.output import print_json

TargetsArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Requests or VMs (names, ids or ends of ids)")
]
PatienceOption = Annotated[
    int | None,
    typer.Option(
        help="Seconds for the guest to shut down (default: set by the site)",
        min=0,
        max=3600,
        metavar="S",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Cut the power without a clean shutdown")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until done; show errors")]
_DONE = {"stop": "stopping", "start": "starting", "reboot": "rebooting"}
#: Beyond what guests are given: workers, hosts and slow guests want time, too.
_GRACE_S = 60


@pass_session
def stop(
    session: Session,
    targets: TargetsArgument,
    timeout: PatienceOption = None,
    force: ForceOption = False,
    wait: WaitOption = False,
) -> None:
    """Shut VMs down. They keep their host and their share."""
    _switch_power(session, "stop", targets, timeout_s=timeout, force=force, wait=wait)


@pass_session
def start(session: Session, targets: TargetsArgument, wait: WaitOption = False) -> None:
    """Start VMs that are off, on their hosts."""
    _switch_power(session, "start", targets, timeout_s=None, force=False, wait=wait)


@pass_session
def reboot(
    session: Session,
    targets: TargetsArgument,
    timeout: PatienceOption = None,
    force: ForceOption = False,
    wait: WaitOption = False,
) -> None:
    """Shut VMs down and start them again; a guest that does not respond is reset."""
    _switch_power(session, "reboot", targets, timeout_s=timeout, force=force, wait=wait)


def _switch_power(
    session: Session, verb: str, names: list[str], *, timeout_s: int | None, force: bool, wait: bool
) -> None:
    """Request power changes of VMs and requests, and wait for their end on request."""
    body: dict[str, Any] = {}
    if timeout_s is not None:
        body["timeout_s"] = timeout_s
    if force:
        body["force"] = True
    # All are looked up first: a slip in the third name switches nothing.
    found = find_targets(session.api, names)
    answers = []
    for target, answer in call_for_each(
        session, found, lambda target: session.api.post(f"{target.path}/{verb}", body)
    ):
        if session.json:
            answers.append(answer)
        session.print_message(f"{_DONE[verb]} {target}")
    if wait:
        answers = wait_until_switched(
            session.api,
            found,
            timeout_s=_GRACE_S + (60 if timeout_s is None else timeout_s),
            quiet=session.json,
        )
        session.print_message("done")
    if session.json:
        print_json(answers)
