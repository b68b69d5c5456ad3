"""What `fuga doctor` finds about the loops of policies: compiled, or plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from controller.cli.doctor.check_result import CheckResult

if TYPE_CHECKING:
    from placement.packing.compiled_loops import Loop

#: What to do about a loop that is not compiled, by its form.
_REMEDIES: Final = {
    "PLAIN": "rounds of thousands of VMs take longer; install fuga where a C compiler is",
    "STALE": "build it again by `make install`",
}


def loop_findings(loops: Iterable[Loop]) -> Iterator[CheckResult]:
    """Report the form in which each loop of the policies runs on this machine."""
    for loop in loops:
        message, remedy = f"{loop.name} runs as {loop.form.value}", _REMEDIES.get(loop.form.name)
        if remedy is None:
            yield CheckResult("policies", True, message)
        else:
            yield CheckResult("policies", True, f"{message}: {remedy}", note=True)
