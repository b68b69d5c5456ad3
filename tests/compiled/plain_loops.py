"""The loops of policies in the form of plain Python, where a compiled form is there, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from placement.fuga import exchange, exchange_loop
from placement.packing import bucket_loop, buckets

#: Modules that run a loop, the name by which they know it, and its plain form.
USES: Final[tuple[tuple[ModuleType, str, Callable[..., Any]], ...]] = (
    (exchange, "fair_exchanges", exchange_loop.fair_exchanges),
    (buckets, "BucketFill", bucket_loop.BucketFill),
)


@contextmanager
def plain_loops() -> Iterator[None]:
    """Run the loops as plain Python."""
    with ExitStack() as stack:
        for module, name, plain in USES:
            stack.enter_context(patch.object(module, name, plain))
        yield
