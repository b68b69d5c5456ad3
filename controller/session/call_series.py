"""Calls the API for each of many targets, with a bar, and a report if it ends early."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from controller.client.errors import ApiProblemError
from controller.session.plan_progress import Bar, progress_bar

if TYPE_CHECKING:
    from controller.client.http import Json
    from controller.session.name_lookup import LookupTarget
    from controller.session.session import Session

BAR_AFTER_S: Final = 2.0


def call_for_each(
    session: Session, targets: Sequence[LookupTarget], call: Callable[[LookupTarget], Json]
) -> Iterator[tuple[LookupTarget, Json]]:
    """Call the API for one target after the other; yield each target with its answer.

    Only one call is under way. If one fails or Ctrl-C ends the command, standard error says for
    which targets the calls were made.
    """
    done = 0
    try:
        with ExitStack() as stack:
            show = _late_bar(stack, quiet=session.json)
            for target in targets:
                show(done, len(targets), str(target))
                answer = call(target)
                done += 1
                yield target, answer
    except BaseException as error:
        if done < len(targets) and len(targets) > 1:
            session.print_note(_rest_text(targets, done, error))
        raise


def _rest_text(targets: Sequence[LookupTarget], done: int, error: BaseException) -> str:
    number = f"number {done + 1:,} of {len(targets):,}"
    failed = "not done" if isinstance(error, ApiProblemError) else "perhaps done"
    lines = [f"stopped at {targets[done]}, {number} in the order given, which is {failed}"]
    if done:
        lines.append(f"done: the {done:,} before it, up to {targets[done - 1]}")
    if left := targets[done + 1 :]:
        lines.append(f"not done: the {len(left):,} after it, from {left[0]} on")
    return "\n".join(lines)


def _late_bar(stack: ExitStack, *, quiet: bool) -> Bar:
    """Return a bar that appears once the command has taken `BAR_AFTER_S`."""
    began = time.monotonic()
    bar: list[Bar] = []
    quiet = quiet or not sys.stderr.isatty()  # without a terminal, a line for each call is enough

    def show(done: int, total: int, line: str) -> None:
        if not bar and time.monotonic() - began >= BAR_AFTER_S:
            bar.append(stack.enter_context(progress_bar(quiet=quiet)))
        for each in bar:
            each(done, total, line)

    return show
