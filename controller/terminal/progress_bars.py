"""Bars on a terminal that stay bars, however narrow it is and however long their text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_WIDTH: Final = 20


def new_bar(*extra_columns: ProgressColumn) -> Progress:
    """Return a bar on standard error that fits the width of the terminal.

    The description has what is left of the line and is cut there. Callers pass it through
    `plain_text.plain`, because it is not escaped. Lines that the command prints while a bar is
    shown appear above it if they go to the same terminal; a file or a pipe gets them as they are.
    """
    from rich.console import Console  # noqa: PLC0415 - `fuga --help` is to be there at once
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        BarColumn(bar_width=_WIDTH),
        *extra_columns,
        TextColumn("{task.description}", markup=False, table_column=rest),
    )
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        expand=True,
        redirect_stdout=sys.stdout.isatty(),
    )
