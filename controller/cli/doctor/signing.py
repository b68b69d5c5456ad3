"""What `fuga doctor` finds about the signatures of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from controller.cli.doctor.check_result import CheckResult

if TYPE_CHECKING:
    from pathlib import Path

    from controller.settings import ControllerSettings
    from registry.rounds import SigningState

_ABOUT = "signatures"


def signing_findings(settings: ControllerSettings) -> Iterator[CheckResult]:
    """Check that the newest rounds are signed, and the key's file of this machine."""
    from registry import Registry  # noqa: PLC0415 - slow; `--help` needs none

    try:
        registry = Registry.connect(settings.resolved_database_url())
        try:
            state = registry.site_keys.signing_state()
        finally:
            registry.close()
    except Exception:
        return
    yield from key_findings(state, settings.resolved_signing_key())


def key_findings(state: SigningState, file: Path) -> Iterator[CheckResult]:
    """Compare the state of signatures with the private key's file."""
    from registry.rounds import PrivateKey, SiteKeyError  # noqa: PLC0415 - slow

    if state.current is None:
        yield CheckResult(
            _ABOUT,
            True,
            "rounds are not signed, so a file of `fuga verify --save` does not show who wrote it:"
            " `fuga db key create`",
            note=True,
        )
        return
    current = state.current.public_key
    if state.unsigned:
        yield CheckResult(
            _ABOUT,
            False,
            f"the newest {state.unsigned} rounds are not signed by the site's key {current}: the"
            " control centre that leads cannot use its private half (see the log,"
            " rounds_not_signed)",
        )
    elif state.last_signed:
        yield CheckResult(_ABOUT, True, f"round {state.last_signed}, the newest, is signed")
    try:
        found = PrivateKey.read(file).public_key
    except SiteKeyError as error:
        missing = not file.exists()
        # A machine without a control centre needs no private key.
        well = missing and not state.unsigned and bool(state.last_signed)
        yield CheckResult(
            _ABOUT,
            well,
            f"{error}: a control centre here cannot sign. Copy the private half of {current}"
            " there, with mode 0600; if it is lost, `fuga db key rotate --lost`",
            note=well,
        )
        return
    if found != current:
        yield CheckResult(
            _ABOUT,
            False,
            f"{file} has key {found}, and the site's is {current}: copy the file from the machine"
            " where it was rotated (an interrupted rotation: `fuga db key rotate` ends it)",
        )
    else:
        yield CheckResult(_ABOUT, True, f"{file} is the private half of {current}")
