"""`fuga env`: address and token for other programs, in shell syntax."""

from __future__ import annotations

import shlex

from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json


@pass_session
def env(session: Session) -> None:
    """Print FUGA_URL and FUGA_TOKEN for a shell: eval "$(fuga env)"."""
    found = session.connection
    if found.token is None:
        raise BadInputError(
            "no token: set FUGA_TOKEN, or run the command where `fuga up` keeps "
            "its state (FUGA_STATE_DIR)"
        )
    variables = {"FUGA_URL": ",".join(found.urls), "FUGA_TOKEN": found.token}
    if found.ca is not None:
        variables["FUGA_CA"] = found.ca
    if session.json:
        print_json(variables)
        return
    for name, value in variables.items():
        echo(f"export {name}={shlex.quote(value)}")
