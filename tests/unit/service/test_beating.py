"""What a process lacks as it starts is not told for as long as a beat lasts."""

from __future__ import annotations

from typing import cast

from registry import Registry
from service import Check, beating
from tests.servers.running import eventually


class Processes:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.troubles: list[str | None] = []

    def begin(self, *_: object, **__: object) -> None:
        """Take it."""

    def beat(self, kind: str, name: str, trouble: str | None) -> bool:
        self.troubles.append(trouble)
        return True

    def end(self, kind: str, name: str) -> None:
        """Take it."""


class Register:
    def __init__(self) -> None:
        self.processes = Processes()


def test_who_is_not_ready_looks_again_soon_and_then_at_each_beat() -> None:
    checks = iter([Check("lease", False, "not requested yet")])
    register = Register()

    with beating(
        cast(Registry, register),
        "control centre",
        "c",
        ready=lambda: [next(checks, Check("lease", True, "another process leads"))],
        interval_s=3600,
    ):
        eventually(lambda: len(register.processes.troubles) == 2, within_s=60)

    assert register.processes.troubles == ["lease: not requested yet", None]
